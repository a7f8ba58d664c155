//! The fast kernels, each written once over [`crate::vector::Vector`]. They know nothing of threads; what calls them cuts the work.

pub mod attention;
pub mod block;
pub mod exact;
pub mod expand;
pub mod few;
pub mod number;
pub mod quantized;
pub mod rows;
pub mod tile;
