//! The pool against a naive model, and its promises by name.
