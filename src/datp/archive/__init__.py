"""The archive: state goes to SQL, and comes back."""
