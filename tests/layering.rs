//! The house keeps its order: dependencies point strictly downward, and no source file outgrows one noun.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest source file, in lines.
const LONGEST: usize = 500;

/// Each folder or file of `src/`, with all that it may use of the crate. Order is the order of ARCHITECTURE.md.
const HOUSE: &[(&str, &[&str])] = &[
    ("ask", &[]),
    ("weights", &[]),
    ("synth", &["weights"]),
    ("tokenizer", &["ask", "weights"]),
    ("model", &["weights"]),
    ("constrain", &["ask", "tokenizer"]),
    ("engine", &["ask", "tokenizer", "model", "constrain"]),
    ("trace", &[]),
    ("score", &["ask"]),
    ("measure", &[]),
    ("judge", &["ask", "trace", "score"]),
    ("journal", &["judge", "score", "ask"]),
    ("report", &["journal", "judge", "score"]),
    (
        "run",
        &[
            "engine",
            "constrain",
            "tokenizer",
            "model",
            "weights",
            "report",
            "journal",
            "judge",
            "score",
            "trace",
            "ask",
        ],
    ),
    (
        "cli",
        &[
            "run",
            "report",
            "journal",
            "judge",
            "trace",
            "measure",
            "weights",
            "synth",
            "tokenizer",
            "model",
            "ask",
        ],
    ),
];

/// Files of `engine/` that must not see candle.
const NO_TENSORS: &[&str] = &[
    "sequence.rs",
    "pages.rs",
    "prefix.rs",
    "shared.rs",
    "scheduler.rs",
];

#[test]
fn dependencies_point_downward() {
    let mut wrong = Vec::new();
    for file in sources(&root().join("src")) {
        let relative = file
            .strip_prefix(root().join("src"))
            .expect("under src")
            .to_path_buf();
        let owner = relative
            .components()
            .next()
            .expect("a name")
            .as_os_str()
            .to_string_lossy()
            .replace(".rs", "");
        if owner == "lib" || owner == "main" {
            continue;
        }
        let Some((_, allowed)) = HOUSE.iter().find(|(name, _)| *name == owner) else {
            wrong.push(format!("{}: not in the house", relative.display()));
            continue;
        };
        for (number, used) in uses(&read(&file)) {
            if used != owner && !allowed.contains(&used.as_str()) {
                wrong.push(format!(
                    "{}:{number}: {owner} may not use {used}",
                    relative.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_itself_points_downward() {
    let place: BTreeMap<_, _> = HOUSE
        .iter()
        .enumerate()
        .map(|(at, (name, _))| (*name, at))
        .collect();
    for (name, allowed) in HOUSE {
        for used in *allowed {
            assert!(
                place[used] < place[name],
                "{name} stands above {used} and may not use it"
            );
        }
    }
}

#[test]
fn judge_knows_no_tensor_and_engine_no_rubric() {
    for folder in ["judge", "trace", "score", "measure", "journal", "report"] {
        for file in sources(&root().join("src").join(folder)) {
            assert!(
                !read(&file).contains("candle"),
                "{} mentions candle",
                file.display()
            );
        }
    }
    for name in NO_TENSORS {
        let text = read(&root().join("src/engine").join(name));
        assert!(
            !code(&text).contains("candle"),
            "engine/{name} mentions candle"
        );
    }
    for file in sources(&root().join("src/engine")) {
        assert!(
            !code(&read(&file)).contains("Rubric"),
            "{} mentions a rubric",
            file.display()
        );
    }
}

#[test]
fn no_file_outgrows_one_noun() {
    let mut long = Vec::new();
    for folder in [
        "src",
        "kernels/src",
        "tests",
        "kernels/tests",
        "examples",
        "benches",
        "kernels/benches",
    ] {
        for file in sources(&root().join(folder)) {
            let lines = read(&file).lines().count();
            if lines > LONGEST {
                long.push(format!("{}: {lines} lines", file.display()));
            }
        }
    }
    assert!(
        long.is_empty(),
        "over {LONGEST} lines:\n{}",
        long.join("\n")
    );
}

#[test]
fn unsafe_stays_in_the_kernels_and_the_map_of_a_file() {
    for file in sources(&root().join("src")) {
        let blocks = code(&read(&file)).matches("unsafe {").count();
        let allowed = 2 * usize::from(file.ends_with("weights/store.rs"));
        assert!(
            blocks <= allowed,
            "{} has {blocks} unsafe blocks",
            file.display()
        );
    }
}

#[test]
fn sockets_are_opened_in_two_files_alone() {
    // One fetches models, which --offline forbids; the other speaks to this machine alone, and sees to it that it does.
    for file in sources(&root().join("src")) {
        let opens = code(&read(&file)).contains("std::net");
        let may = file.ends_with("weights/reach.rs") || file.ends_with("run/loopback.rs");
        assert!(!opens || may, "{} opens sockets", file.display());
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// All `.rs` files below `folder`; an absent folder has none.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("a folder entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The text without line comments.
fn code(text: &str) -> String {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The top-level modules that a file names through `crate::`, with line numbers, in `use` lines and in paths
/// within the code.
fn uses(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split("//").next().unwrap_or("");
        for part in line.split("crate::").skip(1) {
            let name: String = part
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if part.starts_with('{') {
                found.push((
                    at + 1,
                    "a group behind `crate::` (write one `use` a module)".to_owned(),
                ));
            } else if name.chars().next().is_some_and(char::is_lowercase) {
                found.push((at + 1, name));
            }
        }
    }
    found
}
