//! Values as parts of a statement. Types are not named: a function's parameters say what they are.

use std::fmt::Write as _;

/// A value that can be written into a statement, whatever the settings of the connection are.
pub(crate) trait Literal {
    fn write(&self, sql: &mut String);
}

/// In quotes: a bare number that is too long for its sign would become another type.
impl Literal for i64 {
    fn write(&self, sql: &mut String) {
        let _ = write!(sql, "'{self}'");
    }
}

impl Literal for bool {
    fn write(&self, sql: &mut String) {
        sql.push_str(if *self { "true" } else { "false" });
    }
}

impl Literal for &[u8] {
    fn write(&self, sql: &mut String) {
        sql.push_str(r"E'\\x");
        for byte in *self {
            let _ = write!(sql, "{byte:02x}");
        }
        sql.push('\'');
    }
}

/// Backslashes are escaped in `E''` only, and there always.
impl Literal for &str {
    fn write(&self, sql: &mut String) {
        sql.push_str("E'");
        sql.push_str(&self.replace('\\', r"\\").replace('\'', "''"));
        sql.push('\'');
    }
}

impl<T: Literal> Literal for Option<T> {
    fn write(&self, sql: &mut String) {
        match self {
            Some(value) => value.write(sql),
            None => sql.push_str("NULL"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_is_closed_where_its_value_ends() {
        let written = |value: &dyn Literal| {
            let mut sql = String::new();
            value.write(&mut sql);
            sql
        };
        assert_eq!(written(&i64::MIN), "'-9223372036854775808'");
        assert_eq!(written(&&b"\0'\\"[..]), r"E'\\x00275c'");
        assert_eq!(written(&r"a\'; DROP"), r"E'a\\''; DROP'");
        assert_eq!((written(&None::<i64>), written(&Some(true))), ("NULL".to_owned(), "true".to_owned()));
    }
}
