//! The runtime that drives a plan through the stages on threads.
