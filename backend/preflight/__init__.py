"""What a configuration would do, said before anything is loaded. Pure functions, and the SQL that feeds them."""
