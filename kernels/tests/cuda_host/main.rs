//! The kernels for cards, run on the host: the same source, compiled by the system's C++ compiler, with the threads of a block as fibers
//! (`src/cuda/host.cuh`). Held to the scalar truth on ragged shapes, with poison wherever nothing should be read.
//!
//! Fibers are made for Linux; elsewhere there is nothing here.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod batch;
mod library;
mod metal;
mod readout;
mod rows;
mod tables;
