//! The node as its users meet it: the built program, started on free ports, called over sockets.

mod support;

mod admin;
mod carry;
mod clients;
mod configuration;
mod demo;
mod drain;
mod refusals;
mod rotate;
mod secrets;
