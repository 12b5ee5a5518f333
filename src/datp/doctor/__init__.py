"""The doctor: what of a deployment is not as it should be, why that matters, and what helps.

The checks are functions from facts to findings; the facts are gathered in examination.py.
"""
