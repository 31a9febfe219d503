//! What a change would do, without doing it.

use crate::change::Change;
use crate::error::TreatError;
use crate::place::Found;
use whylate_host::HostRoot;

/// The value that a change would replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// This one, in the normal form.
    Value(String),
    /// The wanted one is there already.
    Same(String),
    /// Nothing can be read there: it is still to be made, or the task ended.
    Nothing,
}

impl Change {
    /// The value that it would replace.
    ///
    /// # Errors
    /// [`TreatError::Read`], [`TreatError::Malformed`].
    pub fn before(&self, root: &HostRoot) -> Result<Before, TreatError> {
        Ok(match self.target.read(root)? {
            Found::Nothing | Found::Ended => Before::Nothing,
            Found::Value(value) => {
                let value = self.target.normal(&value);
                if value == self.new { Before::Same(value) } else { Before::Value(value) }
            }
        })
    }
}
