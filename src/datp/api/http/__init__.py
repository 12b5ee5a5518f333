"""HTTP: routes as data, one application that serves them, and the description that is made of them."""
