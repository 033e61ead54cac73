//! Small elections in every order of events, within the bounds that each test states: the machines
//! themselves are driven, not a model of them.

mod consensus;
mod ranks;
mod store;
