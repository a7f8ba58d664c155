//! The engine: sequences over shared pages, a batch that stays full, exact readout.
