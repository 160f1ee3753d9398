//! Harness of the models.
