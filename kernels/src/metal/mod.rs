//! Kernels for Apple silicon: what a pass needs and candle does not have. One source, compiled when it is first needed. What it does is tested on the
//! host (`tests/cuda_host`); no chip has run it.

mod launch;

pub use launch::{attention, copy_page, write_rows};
