//! The world of groups that elect by consensus: clocks that drift, disks that take time, an
//! application with records, and a network and a fate that mean ill.

mod checker;
mod faults;
mod member;
mod network;
mod records;
mod world;

pub(crate) use world::run;
