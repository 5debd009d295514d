"""What a person sees: a Streamlit application that knows the backend only through `backend.contract`."""
