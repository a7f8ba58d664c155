//! The Jinja dialect of chat templates: the functions and filters that model makers rely on, within bounds.
//!
//! Templates come with the model file and are not trusted: instructions, memory, recursion and size are bounded. They see
//! no clock, so that the same messages give the same prompt on any day. This file knows no tokens.

use super::TokenizerError;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value, syntax::SyntaxConfig};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io;

/// Longest template source, in bytes; the longest in use are below 20 kB.
const MOST_SOURCE: usize = 1 << 20;
/// Instructions and allocations that one rendering may use; 100 turns of a common template take some 10,000.
const FUEL: u64 = 2_000_000;
/// The name of the only template.
const NAME: &str = "chat";

/// The date that templates are told: the one that Llama 3 templates fall back to when they have no clock.
const DATE: [(&str, &str); 16] = [
    ("%-d", "26"),
    ("%-m", "7"),
    ("%d", "26"),
    ("%m", "07"),
    ("%Y", "2024"),
    ("%y", "24"),
    ("%B", "July"),
    ("%b", "Jul"),
    ("%A", "Friday"),
    ("%a", "Fri"),
    ("%j", "208"),
    ("%H", "00"),
    ("%I", "12"),
    ("%M", "00"),
    ("%S", "00"),
    ("%p", "AM"),
];

/// A compiled template.
pub(super) struct Template {
    environment: Environment<'static>,
}

impl Template {
    /// Compiles the source.
    pub(super) fn new(source: &str) -> Result<Self, TokenizerError> {
        if source.len() > MOST_SOURCE {
            return Err(TokenizerError::TemplateSyntax(format!(
                "{} bytes are too many",
                source.len()
            )));
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment
            .set_syntax(syntax.map_err(|error| TokenizerError::TemplateSyntax(error.to_string()))?);
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", to_json);
        environment
            .add_template_owned(NAME, source.to_owned())
            .map_err(|error| TokenizerError::TemplateSyntax(error.to_string()))?;
        Ok(Template { environment })
    }

    /// Renders with the given variables.
    pub(super) fn render(&self, variables: Value) -> Result<String, TokenizerError> {
        let rendered = self
            .environment
            .get_template(NAME)
            .and_then(|template| template.render(variables));
        rendered.map_err(|error| TokenizerError::TemplateRender(error.to_string()))
    }
}

fn raise_exception(reason: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, reason))
}

fn strftime_now(format: String) -> String {
    DATE.iter()
        .fold(format, |text, (code, value)| text.replace(code, value))
}

/// JSON as Python writes it: a blank after each comma and colon, and no escapes for HTML.
fn to_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Python's other options change nothing that templates say to a model.
    for ignored in ["ensure_ascii", "sort_keys", "separators"] {
        let _: Option<Value> = options.get(ignored)?;
    }
    options.assert_all_used()?;
    let mut bytes = Vec::new();
    let written = match indent {
        Some(width) => {
            let blanks = vec![b' '; width.min(16)];
            value.serialize(&mut Serializer::with_formatter(
                &mut bytes,
                PrettyFormatter::with_indent(&blanks),
            ))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, PythonFormatter)),
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Value::from_safe_string(
        String::from_utf8_lossy(&bytes).into_owned(),
    ))
}

struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::context;

    fn check(source: &str, expected: &str) {
        let template = Template::new(source).expect("a good template");
        let rendered =
            template.render(context! { item => context! { a => vec![1, 2], b => "<x>" } });
        assert_eq!(rendered.expect("it renders"), expected, "{source}");
    }

    #[test]
    fn the_dialect_is_that_of_chat_templates() {
        check("{{ item | tojson }}", r#"{"a": [1, 2], "b": "<x>"}"#);
        check("{{ item.a | tojson(indent=2) }}", "[\n  1,\n  2\n]");
        check("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024");
        check("{{ ' a '.strip() + item.b.upper() }}", "a<X>");
        check("  {% if item %}\nyes\n  {% endif %}\nend\n", "yes\nend");
        check(
            "{% for x in item.a %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
            "1",
        );
    }

    #[test]
    fn hostile_templates_end_in_errors() {
        for source in ["{{", "{% if %}", "{% include 'other' %}{% endif %}"] {
            assert!(
                matches!(
                    Template::new(source),
                    Err(TokenizerError::TemplateSyntax(_))
                ),
                "{source}"
            );
        }
        for source in [
            "{{ raise_exception('no') }}",
            "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
            "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
            "{{ 'a' * 100000000000 }}",
            "{% include 'other' %}",
        ] {
            let rendered = Template::new(source)
                .expect("good syntax")
                .render(Value::UNDEFINED);
            assert!(
                matches!(rendered, Err(TokenizerError::TemplateRender(_))),
                "{source}"
            );
        }
        assert!(Template::new(&" ".repeat(MOST_SOURCE + 1)).is_err());
    }
}
