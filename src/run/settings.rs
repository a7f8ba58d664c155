//! What a run needs to know about the machine: how much memory is free, and how much of it the cache may take.

use std::path::Path;

/// Memory that is free for this process, in bytes: the smaller of what the system has available and what the control
/// group leaves; `None` where neither can be read.
pub fn free_memory() -> Option<u64> {
    let system = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| meminfo(&text));
    let group = group_left("memory.max", "memory.current", "/sys/fs/cgroup").or_else(|| {
        group_left(
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "/sys/fs/cgroup/memory",
        )
    });
    match (system, group) {
        (Some(system), Some(group)) => Some(system.min(group)),
        (system, group) => system.or(group),
    }
}

/// The share of `free` bytes that the KV cache may take by default: half, so that weights that are still to be read,
/// activations and other programs keep the rest.
pub fn cache_share(free: u64) -> u64 {
    free / 2
}

/// Peak resident memory of this process in bytes, where the system tells it.
pub fn peak_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    kibibytes(&text, "VmHWM:")
}

fn meminfo(text: &str) -> Option<u64> {
    kibibytes(text, "MemAvailable:")
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

fn group_left(limit: &str, used: &str, folder: &str) -> Option<u64> {
    let read = |name: &str| -> Option<u64> {
        std::fs::read_to_string(Path::new(folder).join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    Some(read(limit)?.saturating_sub(read(used)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let check = |text: &str, want: Option<u64>| assert_eq!(meminfo(text), want, "{text}");
        check("MemTotal: 9 kB\nMemAvailable:       7 kB\n", Some(7168));
        check("MemTotal: 9 kB\n", None);
        check("MemAvailable: many kB\n", None);
        check("MemAvailable: 99999999999999999999 kB\n", None);
    }
}
