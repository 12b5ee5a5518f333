"""The shipped step types, a file for each kind of work; `datp.steps.shipped` names them all."""
