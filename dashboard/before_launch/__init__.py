"""Before a launch: a few groups of the form's task, sampled from its model and scored by its rewards."""
