//! assize: a local judge inference engine. Read ARCHITECTURE.md for the house and the path of a trace.

pub mod ask;

pub mod weights;

pub mod synth;

pub mod tokenizer;

pub mod model;

pub mod constrain;

pub mod engine;

pub mod trace;

pub mod score;

pub mod measure;

pub mod judge;

pub mod journal;

pub mod report;

pub mod run;

pub mod cli;
