//! `assize models`: the models that have a name, and which of them lie on this disk.

use super::fetch::size;
use super::style::Console;
use crate::weights::fetch::home;
use crate::weights::layouts::{Place, disk_bytes};
use crate::weights::manifest::{self, Manifest, Source};
use serde_json::json;
use std::io::{Write, stdout};

/// Arguments of `assize models`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  assize models
  assize models --json | jq -r 'select(.kind == \"evaluator\").name'

A model is pinned if its sha256 is part of assize; of others, the first fetch records the hub's own in assize.lock.
Packed weights, which make the next start faster, lie in the folder `layouts` of the model cache; it may be removed at any time.")]
pub struct Args {}

/// Prints the table, or with `json` an object a model, on stdout; and says what packed weights take, where there are any.
///
/// # Errors
/// Where stdout can't be written.
pub fn run(_: &Args, json: bool, console: &Console) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    let packed = home().map(|home| (disk_bytes(&home), Place::folder(&home)));
    if let Some((bytes @ 1.., folder)) = packed {
        console.say(format!(
            "packed weights kept for faster starts: {} in {}, which may be removed",
            size(bytes),
            folder.display()
        ));
    }
    let folder = home().map(|home| home.join("models"));
    let here = |manifest: &Manifest| {
        let folder = folder.as_ref().map(|folder| folder.join(&manifest.name));
        folder.filter(|folder| {
            manifest
                .files
                .iter()
                .all(|file| folder.join(&file.name).is_file())
        })
    };
    if json {
        for manifest in manifest::all() {
            let folder = here(manifest);
            let files = manifest
                .files
                .iter()
                .map(|file| json!({"name": file.name, "bytes": file.bytes, "sha256": file.sha256}));
            let line = json!({
                "name": manifest.name, "kind": manifest.kind.name(), "family": manifest.family,
                "description": manifest.description, "licence": manifest.licence, "context": manifest.context,
                "parameters": manifest.parameters, "quantization": manifest.quantization,
                "contract": manifest.contract.name(), "pinned": manifest.pinned(), "pinned_from": manifest.pinned_from,
                "bytes": manifest.bytes(), "files": files.collect::<Vec<_>>(),
                "sources": manifest.sources.iter().map(source).collect::<Vec<_>>(),
                "default": manifest.name == manifest::DEFAULT, "present": folder.is_some(), "folder": folder,
            });
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    let rows: Vec<[String; 8]> = manifest::all()
        .iter()
        .map(|manifest| {
            let mark = |yes, text: &str| if yes { text.to_owned() } else { "-".to_owned() };
            [
                manifest.name.clone()
                    + if manifest.name == manifest::DEFAULT {
                        " (default)"
                    } else {
                        ""
                    },
                manifest.kind.name().into(),
                manifest.family.clone(),
                format!("{} {}", manifest.parameters, manifest.quantization),
                manifest.bytes().map_or_else(|| "?".into(), size),
                mark(manifest.pinned(), "pinned"),
                mark(here(manifest).is_some(), "here"),
                manifest.licence.clone(),
            ]
        })
        .collect();
    let head = [
        "name", "kind", "family", "size", "file", "sha256", "disk", "licence",
    ]
    .map(String::from);
    table(&mut out, std::iter::once(&head).chain(&rows))?;
    Ok(())
}

fn source(source: &Source) -> serde_json::Value {
    match source {
        Source::Hf { repo, revision } => json!({"kind": "hf", "repo": repo, "revision": revision}),
        Source::Pip {
            requirements,
            members,
        } => {
            json!({"kind": "pip", "requirements": requirements, "members": members})
        }
    }
}

/// Columns as wide as their widest cell, two spaces apart.
pub(super) fn table<'a, const N: usize>(
    out: &mut impl Write,
    rows: impl Iterator<Item = &'a [String; N]> + Clone,
) -> std::io::Result<()> {
    let mut widths = [0; N];
    for row in rows.clone() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a", "日本", "x"], ["longer", "b", ""]].map(|row| row.map(String::from));
        let mut out = Vec::new();
        table(&mut out, rows.iter()).expect("a table");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "a       日本  x\nlonger  b\n"
        );
    }
}
