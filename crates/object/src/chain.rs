//! Chains of error causes, and their joined text.

use std::error::Error as StdError;

/// An error and its causes, the root cause last.
pub(crate) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| {
        (*error).source()
    })
}

/// The text of an error and of all its causes, without repetitions.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::error::generic;

    #[test]
    fn causes_are_told_once_each() {
        let inner = generic(io::Error::other("the cause"));
        assert_eq!(chain(&inner), "Generic store error: the cause");
    }
}
