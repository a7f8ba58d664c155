//! Models of the Hugging Face hub, through hf-hub, in the cache that it shares with Python's huggingface_hub: a file that
//! lies there is used as it is. It asks first, within seconds, whether the hub can be reached at all, and what sha256 it
//! says the file has. It knows no manifest and no lock.

use super::fetch::{FetchOptions, SourceError, Wanted};
use super::lock::Locked;
use std::env;
use std::path::PathBuf;

/// The hub and its cache.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the hub, without a slash at the end.
    pub endpoint: String,
    /// The cache's folder of repositories; `None` without a home folder.
    pub cache: Option<PathBuf>,
    /// The access token, for gated models.
    pub token: Option<String>,
}

impl Settings {
    /// From `HF_ENDPOINT`, `HF_HUB_CACHE`, `HF_HOME` and `HF_TOKEN`; the token may also lie in the file that
    /// `huggingface-cli login` writes.
    pub fn from_environment() -> Settings {
        let set = |name| {
            env::var(name)
                .ok()
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let home = set("HF_HOME").map(PathBuf::from).or_else(|| {
            let home = env::var_os("HOME").or_else(|| env::var_os("USERPROFILE"))?;
            Some(PathBuf::from(home).join(".cache").join("huggingface"))
        });
        let login = || std::fs::read_to_string(home.as_ref()?.join("token")).ok();
        let token = set("HF_TOKEN")
            .or_else(login)
            .map(|token| token.trim().to_owned());
        Settings {
            endpoint: set("HF_ENDPOINT")
                .unwrap_or_else(|| "https://huggingface.co".into())
                .trim_end_matches('/')
                .into(),
            token: token.filter(|token| !token.is_empty()),
            cache: set("HF_HUB_CACHE")
                .map(PathBuf::from)
                .or_else(|| Some(home?.join("hub"))),
        }
    }
}

/// Finds or downloads the files, checks each digest, and links them to their places.
#[cfg(feature = "hub")]
pub(super) fn fetch(
    repo: &str,
    revision: &str,
    wanted: &[Wanted],
    options: &FetchOptions,
) -> Result<Vec<Locked>, SourceError> {
    let hub = client::Hub::new(repo, revision, wanted, options)?;
    wanted.iter().map(|file| hub.file(file)).collect()
}

/// Without the feature `hub` there is no client.
#[cfg(not(feature = "hub"))]
pub(super) fn fetch(
    _: &str,
    _: &str,
    _: &[Wanted],
    _: &FetchOptions,
) -> Result<Vec<Locked>, SourceError> {
    Err(SourceError::Unusable(
        "hf: this assize was built without the feature `hub`".into(),
    ))
}

#[cfg(feature = "hub")]
mod client {
    use super::{FetchOptions, Locked, SourceError, Wanted};
    use crate::weights::fetch;
    use crate::weights::progress::Progress;
    use crate::weights::reach::reach;
    use crate::weights::{FetchError, manifest, verify};
    use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
    use hf_hub::{Cache, Repo, RepoType};
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    /// How long the hub may take to say what a file is.
    const ANSWER: Duration = Duration::from_secs(20);

    /// A repository of the hub at a revision.
    pub(super) struct Hub<'a> {
        options: &'a FetchOptions<'a>,
        cache: Cache,
        /// None where the network is off, or not needed because all files lie in the cache.
        api: Option<Api>,
        repo: Repo,
        name: &'a str,
    }

    impl<'a> Hub<'a> {
        pub(super) fn new(
            name: &'a str,
            revision: &str,
            wanted: &[Wanted],
            options: &'a FetchOptions,
        ) -> Result<Self, SourceError> {
            let unusable = |reason: String| SourceError::Unusable(format!("hf: {reason}"));
            let Some(folder) = &options.hub.cache else {
                return Err(unusable(
                    "no folder for its cache: neither HF_HOME nor HOME is set".into(),
                ));
            };
            // What the lock recorded came from that commit, whatever the branch points to today.
            let revision = wanted
                .iter()
                .find_map(|file| file.revision.clone())
                .unwrap_or_else(|| revision.into());
            let repo = Repo::with_revision(name.into(), RepoType::Model, revision);
            let cache = Cache::new(folder.clone());
            let mut hub = Hub {
                options,
                cache: cache.clone(),
                api: None,
                repo,
                name,
            };
            let all_here = wanted.iter().all(|file| hub.lying_here(file).is_some());
            if !options.offline && !all_here {
                reach(&options.hub.endpoint).map_err(unusable)?;
                let builder =
                    ApiBuilder::from_cache(cache).with_endpoint(options.hub.endpoint.clone());
                let builder = builder
                    .with_token(options.hub.token.clone())
                    .with_retries(3)
                    .with_progress(false);
                hub.api = Some(
                    builder
                        .build()
                        .map_err(|error| unusable(error.to_string()))?,
                );
            }
            Ok(hub)
        }

        /// Brings one file to its place.
        pub(super) fn file(&self, wanted: &Wanted) -> Result<Locked, SourceError> {
            let (path, revision) = match (self.lying_here(wanted), &self.api) {
                (Some(path), _) => (path, None),
                (None, Some(api)) => self
                    .download(api, wanted)
                    .map(|(path, commit)| (path, Some(commit)))?,
                (None, None) => return Err(SourceError::Unusable("hf: the network is off".into())),
            };
            let sha256 = verify::remembered(&path, &self.options.home, self.options.progress)
                .map_err(FetchError::from)?;
            let hint = match revision {
                Some(_) => "what came was thrown away; fetch again",
                None => "remove it from the Hugging Face cache and fetch again",
            };
            // The cache names large files by the sha256 that the hub says they have.
            let blob = path.canonicalize().ok();
            let said = blob
                .as_deref()
                .and_then(Path::file_name)
                .and_then(|name| name.to_str());
            let said = said
                .filter(|name| manifest::is_sha256(name))
                .map(String::from);
            let by_the_hub = Wanted {
                name: wanted.name,
                path: path.clone(),
                bytes: None,
                sha256: said,
                revision: None,
                by: "the hub".into(),
            };
            let agreed = wanted
                .agree(&path, &sha256, hint)
                .and_then(|()| by_the_hub.agree(&path, &sha256, hint));
            if let Err(error) = agreed {
                if revision.is_some() {
                    let _ = blob.map(fs::remove_file);
                    let _ = fs::remove_file(&path);
                }
                return Err(error.into());
            }
            link(&path, &wanted.path)
                .map_err(|source| fetch::io(&wanted.path, "link the file here", source))?;
            let revision = revision.as_deref().unwrap_or(self.repo.revision());
            Ok(fetch::locked(
                wanted,
                &sha256,
                &format!("hf:{}", self.name),
                Some(revision),
            )?)
        }

        /// The file in the cache: by its digest, which names it there, or under the revision.
        fn lying_here(&self, wanted: &Wanted) -> Option<PathBuf> {
            let repo = self.cache.repo(self.repo.clone());
            let by_digest = wanted.sha256.as_ref().map(|sha256| repo.blob_path(sha256));
            let by_commit = repo.pointer_path(self.repo.revision()).join(wanted.name);
            let places = by_digest
                .into_iter()
                .chain([by_commit])
                .chain(repo.get(wanted.name));
            places.into_iter().find(|path| path.is_file())
        }

        /// Downloads the file into the Hugging Face cache, going on where an earlier try stopped.
        fn download(&self, api: &Api, wanted: &Wanted) -> Result<(PathBuf, String), SourceError> {
            let repo = api.repo(self.repo.clone());
            let url = repo.url(wanted.name);
            let unusable =
                |error: &ApiError| SourceError::Unusable(self.reason(&repo, wanted, error));
            let (send, receive) = mpsc::channel();
            let (asked, asking) = (url.clone(), api.clone());
            thread::spawn(move || send.send(asking.metadata(&asked)));
            let Ok(answer) = receive.recv_timeout(ANSWER) else {
                let reason = format!(
                    "hf: {} gave no answer within {} seconds",
                    self.options.hub.endpoint,
                    ANSWER.as_secs()
                );
                return Err(SourceError::Unusable(reason));
            };
            let metadata = answer.map_err(|error| unusable(&error))?;
            // The hub names large files by their sha256: a wrong one need not be downloaded.
            if manifest::is_sha256(metadata.etag()) {
                let hint = "the file at the hub is another one now; fetch the one that was meant elsewhere, or remove its record";
                wanted.agree(Path::new(&url), metadata.etag(), hint)?;
            }
            let label = format!("fetching {}", wanted.name);
            let bar = Bar {
                progress: self.options.progress,
                label,
                done: 0,
            };
            let path = repo.download_with_progress(wanted.name, bar);
            self.options.progress.end();
            let path = path.map_err(|error| unusable(&error))?;
            Ok((path, metadata.commit_hash().into()))
        }

        /// What went wrong, in one line.
        fn reason(&self, repo: &ApiRepo, wanted: &Wanted, error: &ApiError) -> String {
            let (name, text) = (self.name, error.to_string());
            if text.contains("404") {
                let files = repo.info().map(|info| info.siblings).unwrap_or_default();
                let names: Vec<String> = files
                    .into_iter()
                    .map(|file| file.rfilename)
                    .filter(|file| file.ends_with(".gguf"))
                    .collect();
                let others = if names.is_empty() {
                    String::new()
                } else {
                    format!("; it has {}", names.join(", "))
                };
                return format!(
                    "hf: {name} has no {} at {}{others}",
                    wanted.name,
                    self.repo.revision()
                );
            }
            if text.contains("401") || text.contains("403") {
                return format!(
                    "hf: {name} is not open to all ({text}): accept its licence and set HF_TOKEN"
                );
            }
            format!("hf: {name}: {text}")
        }
    }

    /// Puts the file of the Hugging Face cache under its name here. Where links can't be made, it is copied.
    fn link(from: &Path, to: &Path) -> std::io::Result<()> {
        let from = from.canonicalize()?;
        let _ = fs::remove_file(to);
        #[cfg(unix)]
        if std::os::unix::fs::symlink(&from, to).is_ok() {
            return Ok(());
        }
        if fs::hard_link(&from, to).is_ok() {
            return Ok(());
        }
        let mut partial = to.as_os_str().to_owned();
        partial.push(".partial");
        fs::copy(&from, &partial)?;
        fs::rename(&partial, to)
    }

    struct Bar<'a> {
        progress: &'a dyn Progress,
        label: String,
        done: u64,
    }

    impl hf_hub::api::Progress for Bar<'_> {
        fn init(&mut self, size: usize, _: &str) {
            self.done = 0;
            self.progress.begin(&self.label, Some(size as u64));
        }
        fn update(&mut self, size: usize) {
            self.done += size as u64;
            self.progress.advance(self.done);
        }
        fn finish(&mut self) {}
    }
}
