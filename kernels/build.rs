//! Compiles the kernels for NVIDIA cards, with the feature `cuda` and not otherwise: each source to a file of code for several cards, which the crate
//! includes. What is compiled is kept beside a digest of sources, compiler and architectures, so that an unchanged tree costs nothing.
//!
//! `CUDA_COMPUTE_CAP` (such as 90) chooses one architecture; without it there is code for 80, 86, 89 and 90a, and intermediate code of 80 for what is
//! newer. nvcc is looked for in `CUDA_HOME`, in `CUDA_PATH`, and then in `PATH`.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources that are compiled by themselves; the others are included by them.
const MODULES: [&str; 4] = ["attention", "rows", "readout", "dequantize"];
/// Architectures without `CUDA_COMPUTE_CAP`.
const ARCHITECTURES: [u32; 4] = [80, 86, 89, 90];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    if let Err(error) = compile() {
        println!("cargo:warning=the kernels for NVIDIA cards were not compiled");
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn compile() -> Result<(), Box<dyn Error>> {
    for variable in ["CUDA_COMPUTE_CAP", "CUDA_HOME", "CUDA_PATH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    println!("cargo:rerun-if-changed=src/cuda");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo has set no OUT_DIR")?);
    let (architectures, intermediate) = match env::var("CUDA_COMPUTE_CAP") {
        Ok(chosen) => (vec![architecture(&chosen)?], None),
        Err(_) => (ARCHITECTURES.to_vec(), ARCHITECTURES.first().copied()),
    };
    fs::write(
        out.join("architectures.rs"),
        format!("({architectures:?}, {intermediate:?} as Option<u32>)"),
    )?;

    if let Some(capability) = candles_capability() {
        println!("cargo:rustc-env=ASSIZE_CUDA_CAPABILITY={capability}");
    }

    let nvcc = find_nvcc();
    let version = Command::new(&nvcc)
        .arg("--version")
        .output()
        .map_err(|error| {
            format!(
                "the feature `cuda` needs NVIDIA's compiler, and {} could not be run: {error}\n\
                 hint: set CUDA_HOME to a toolkit (12.8 or later), or put its bin folder into PATH",
                nvcc.display()
            )
        })?;
    let mut flags: Vec<String> = vec!["-std=c++17".into(), "-O3".into(), "-fatbin".into()];
    for architecture in &architectures {
        // The one with its own suffix is the one whose own instructions may be wanted.
        let suffix = if *architecture == 90 { "a" } else { "" };
        flags.push(format!(
            "-gencode=arch=compute_{architecture}{suffix},code=sm_{architecture}{suffix}"
        ));
    }
    if let Some(architecture) = intermediate {
        flags.push(format!(
            "-gencode=arch=compute_{architecture},code=compute_{architecture}"
        ));
    }

    let folder = Path::new("src/cuda");
    let mut hash = DefaultHasher::new();
    (&version.stdout, &flags).hash(&mut hash);
    let mut sources: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|ending| ending == "cu" || ending == "cuh")
        {
            sources.push(path);
        }
    }
    sources.sort();
    for source in &sources {
        source.hash(&mut hash);
        fs::read(source)?.hash(&mut hash);
    }
    let digest = format!("{:016x}", hash.finish());

    let mut running = Vec::new();
    for module in MODULES {
        let (made, stamp) = (
            out.join(format!("{module}.fatbin")),
            out.join(format!("{module}.digest")),
        );
        if made.exists() && fs::read_to_string(&stamp).is_ok_and(|own| own == digest) {
            continue;
        }
        let source = folder.join(format!("{module}.cu"));
        let child = Command::new(&nvcc)
            .args(&flags)
            .arg(&source)
            .arg("-o")
            .arg(&made)
            .spawn()?;
        running.push((child, source, stamp));
    }
    // All are waited for, so that none is left behind where one fails.
    let mut failed = None;
    for (mut child, source, stamp) in running {
        match child.wait()?.success() {
            true => fs::write(stamp, &digest)?,
            false => failed = Some(source),
        }
    }
    match failed {
        Some(source) => Err(format!("nvcc refused {}", source.display()).into()),
        None => Ok(()),
    }
}

/// `90`, `9.0`, `90a` and `sm_90` are all 90.
fn architecture(chosen: &str) -> Result<u32, Box<dyn Error>> {
    let digits: String = chosen.chars().filter(char::is_ascii_digit).collect();
    match digits.parse() {
        Ok(architecture) if architecture >= 80 => Ok(architecture),
        _ => Err(format!(
            "CUDA_COMPUTE_CAP={chosen}: the kernels need a compute capability of 80 or more (bf16 on tensor cores)"
        )
        .into()),
    }
}

/// What candle compiles its own kernels for: what was chosen, or else what the first card of this machine has.
fn candles_capability() -> Option<String> {
    if let Ok(chosen) = env::var("CUDA_COMPUTE_CAP") {
        return Some(chosen);
    }
    let asked = Command::new("nvidia-smi")
        .args(["--query-gpu=compute_cap", "--format=csv,noheader"])
        .output()
        .ok()?;
    let told = String::from_utf8(asked.stdout).ok()?;
    Some(told.lines().next()?.trim().to_owned())
}

fn find_nvcc() -> PathBuf {
    let name = OsString::from("nvcc");
    ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(env::var_os)
        .map(|root| PathBuf::from(root).join("bin").join(&name))
        .find(|nvcc| nvcc.exists())
        .unwrap_or_else(|| PathBuf::from(name))
}
