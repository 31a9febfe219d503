//! Names of system calls.

/// The name of system call `number` on this architecture; `None` for none or one that is not known.
///
/// Calls of 32-bit programs have numbers of their own and are named as if they were the machine's.
pub(crate) fn name(number: i64) -> Option<String> {
    let number = usize::try_from(number).ok()?;
    syscalls::Sysno::new(number).map(|known| known.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names_and_no_number_has_none() {
        let sleep = syscalls::Sysno::clock_nanosleep.id();
        assert_eq!(name(i64::from(sleep)).as_deref(), Some("clock_nanosleep"));
        assert_eq!(name(-1), None);
        assert_eq!(name(i64::MAX), None);
    }
}
