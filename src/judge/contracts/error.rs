//! Why a case can't be put into a contract's form, or an answer not be read, with the mend.

use super::{Contract, JSON};

/// A fault of a case or of an answer under a contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContractError {
    /// No contract has this name.
    #[error("there is no contract {0:?}; hint: the contracts are {known}", known = known())]
    Unknown(String),
    /// The form has no such scale.
    #[error(
        "the contract {contract} grades {grades}, and the rubric's labels are {labels}; hint: {mend}"
    )]
    Scale {
        /// The contract.
        contract: &'static str,
        /// What it can grade.
        grades: &'static str,
        /// The labels that were given.
        labels: String,
        /// What to do about it.
        mend: &'static str,
    },
    /// The form shows a field that the item does not have.
    #[error(
        "the contract {contract} shows the {field}, and the item has none; hint: give the item a {field:?}, or use {other}"
    )]
    Missing {
        /// The contract.
        contract: &'static str,
        /// The field.
        field: &'static str,
        /// What serves without it.
        other: &'static str,
    },
    /// The form has no place for a second response.
    #[error(
        "the contract {contract} judges one response, not two; hint: use prometheus-v2, selene or json to compare"
    )]
    Pair {
        /// The contract.
        contract: &'static str,
    },
    /// The answer is not of the form.
    #[error("the judge's answer is not of the form of {contract}")]
    Answer {
        /// The contract.
        contract: &'static str,
    },
    /// The readout is of other labels.
    #[error("the readout is of other labels than the contract asked for")]
    Readout,
}

fn known() -> String {
    let mut names = vec![JSON];
    names.extend(Contract::ALL.map(Contract::name));
    names.join(", ")
}
