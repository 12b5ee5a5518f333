"""Events are run: begin with run_event.py."""
