//! What a script in a guest left behind.

use crate::error::LabError;
use serde_json::Value;
use std::path::PathBuf;

/// What a script in a guest left behind.
#[derive(Debug)]
pub struct Output {
    /// Its exit status; 128 and more when a signal ended it.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
    /// What the kernel logged while it ran.
    pub kernel_log: String,
    /// The folder with what it put into `$OUT`, until the guest ends.
    pub files: PathBuf,
}

impl Output {
    /// The JSON document that it put into `$OUT/NAME`.
    ///
    /// # Errors
    /// [`LabError::Form`] when it is not there or no document, with what the script said.
    pub fn json(&self, name: &str) -> Result<Value, LabError> {
        let text = std::fs::read_to_string(self.files.join(name)).unwrap_or_default();
        serde_json::from_str(&text).map_err(|error| LabError::Form {
            what: "a JSON document",
            text: format!("{name}: {error}: {text}\nstdout: {}\nstderr: {}", self.stdout, self.stderr),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_document_is_reported_with_what_the_script_said() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("there.json"), "{\"cpu\": 1}").unwrap();
        let output = Output {
            status: 1,
            stdout: String::new(),
            stderr: "no such plan".to_owned(),
            kernel_log: String::new(),
            files: folder.path().to_owned(),
        };
        assert_eq!(output.json("there.json").unwrap()["cpu"], 1);
        let error = output.json("result.json").unwrap_err().to_string();
        assert!(error.contains("result.json") && error.contains("no such plan"), "{error}");
    }
}
