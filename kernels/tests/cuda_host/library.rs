//! The library of the kernels for the host: compiled once a change of its sources, opened once a run.

use assize_kernels::cuda::shapes::Attend;
use assize_kernels::cuda::tables::{Entry, Item, Merge};
use std::collections::hash_map::DefaultHasher;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

/// What every launch has; the structure of `host.cpp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Launch {
    /// Blocks in a row.
    pub x: u32,
    /// Rows of blocks.
    pub y: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory.
    pub bytes: u32,
    /// Bit 0: the last block and thread is the first to run. Bit 1: each warp goes as far as it gets before the next.
    pub order: u32,
}

impl Launch {
    /// In all orders.
    pub fn ordered(self) -> [Launch; 4] {
        [0, 1, 2, 3].map(|order| Launch { order, ..self })
    }

    /// Rising, without shared memory.
    pub fn new(x: usize, y: usize, threads: usize, bytes: usize) -> Launch {
        Launch {
            x: x as u32,
            y: y as u32,
            threads: threads as u32,
            bytes: bytes as u32,
            order: 0,
        }
    }

    /// Attention's.
    pub fn attend(block: Attend, items: usize, kv_heads: usize) -> Launch {
        Launch::new(items, kv_heads, block.threads(), block.bytes())
    }
}

/// What is the same for all of an attention; the structure of `paging.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Shape {
    pub heads: u32,
    pub kv_heads: u32,
    pub dim: u32,
    pub window: u32,
    pub scale: f32,
    pub soft_cap: f32,
    pub brief: u32,
    pub stages: u32,
}

/// Null, or what went wrong.
pub type Answer = *const c_char;

/// Types of the library's functions.
pub type HostAttend = unsafe extern "C" fn(
    *const Launch,
    u32,
    *const f32,
    *const u16,
    *const u16,
    *const Item,
    *const Entry,
    *const u32,
    *mut f32,
    *mut [f32; 2],
    *mut c_void,
    *const Shape,
) -> Answer;
pub type HostMerge = unsafe extern "C" fn(
    *const Launch,
    *const Merge,
    *const f32,
    *const [f32; 2],
    *mut c_void,
    *const Shape,
) -> Answer;

/// Panics where a launch went wrong.
pub fn expect(answer: Answer) {
    if !answer.is_null() {
        // SAFETY: the library answers null or a string literal of its own.
        panic!("{}", unsafe { CStr::from_ptr(answer) }.to_string_lossy());
    }
}

/// A function of the library. The caller names its type.
pub fn function<F: Copy>(name: &str) -> F {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        let path = CString::new(build().to_str().unwrap()).unwrap();
        // SAFETY: a valid string; the library runs no code of its own when it is opened. 2 asks for all symbols at once.
        let library = unsafe { dlopen(path.as_ptr(), 2) };
        if library.is_null() {
            // SAFETY: after a failure there is a message, which lives until the next call.
            panic!("{}", unsafe { CStr::from_ptr(dlerror()) }.to_string_lossy());
        }
        library as usize
    });
    let symbol = CString::new(name).unwrap();
    // SAFETY: the library stays open, and the name is a valid string.
    let address = unsafe { dlsym(library as *mut c_void, symbol.as_ptr()) };
    assert!(!address.is_null(), "no function {name}");
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: `F` is as large as an address; that it is the type of this function is for the caller to see to, beside `host.cpp`.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Compiles the sources to a library whose name says what it was made of.
fn build() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_string());
    let flags = [
        "-std=c++17",
        "-O2",
        "-ffp-contract=off",
        "-U_FORTIFY_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unknown-pragmas",
        "-shared",
        "-fPIC",
    ];
    let mut hash = DefaultHasher::new();
    (&compiler, flags).hash(&mut hash);
    for folder in ["cuda", "metal"] {
        let mut files: Vec<PathBuf> = fs::read_dir(source.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_none_or(|ending| ending != "rs"))
            .collect();
        files.sort();
        for file in files {
            file.hash(&mut hash);
            fs::read(&file).unwrap().hash(&mut hash);
        }
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(format!("kernels-{:016x}.so", hash.finish()));
    if library.exists() {
        return library;
    }
    let made = folder.join(format!("kernels-{}.part", std::process::id()));
    let status = Command::new(&compiler)
        .args(flags)
        .arg(source.join("cuda/host.cpp"))
        .arg("-o")
        .arg(&made)
        .status()
        .unwrap_or_else(|error| {
            panic!("this test compiles the kernels for the host and needs a C++ compiler: {compiler}: {error} (set CXX to another)")
        });
    assert!(status.success(), "{compiler} refused the kernels");
    fs::rename(&made, &library).unwrap();
    library
}
