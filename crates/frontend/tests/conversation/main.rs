//! Conversations byte for byte: each option and command, at its extremes.

mod client;
mod negotiation;
mod transmission;
