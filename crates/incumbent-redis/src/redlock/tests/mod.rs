//! The rounds, on servers that a test can empty, stop, cut off and give another clock.

mod directed;
mod model;
mod script;
mod storm;
