//! Options for opening a plugin's devices.

use super::sys;
use std::fmt;
use std::str::FromStr;

/// An option of a plugin, written as `name=value`: for example `cpu_device_count=8` of the CPU plugin.
///
/// The text of a value determines its type: `8` is a whole number, `0.75` a fraction, `true` and `false` are
/// Booleans, and `[0,1]` is a list of whole numbers. Any other value, and any value in double quotes, is
/// text.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginOption {
    /// The name of the option.
    pub name: String,
    /// The value. If it does not have the type that the plugin expects, the plugin may return an error, or,
    /// as the CPU plugin does, end the process.
    pub value: OptionValue,
}

/// The value of a [`PluginOption`].
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// A whole number.
    Int(i64),
    /// A fraction.
    Float(f32),
    /// A Boolean.
    Bool(bool),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// A text.
    Text(String),
}

impl From<(&str, i64)> for PluginOption {
    fn from((name, value): (&str, i64)) -> Self {
        Self { name: name.into(), value: OptionValue::Int(value) }
    }
}

/// The error for a text that is not a [`PluginOption`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an option of the form name=value")]
pub struct ParseOptionError(String);

impl FromStr for PluginOption {
    type Err = ParseOptionError;

    fn from_str(text: &str) -> Result<Self, ParseOptionError> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(Self { name: name.into(), value: OptionValue::parse(value) })
            }
            _ => Err(ParseOptionError(text.into())),
        }
    }
}

impl fmt::Display for PluginOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.name)?;
        match &self.value {
            OptionValue::Int(value) => write!(f, "{value}"),
            OptionValue::Float(value) => write!(f, "{value:?}"),
            OptionValue::Bool(value) => write!(f, "{value}"),
            OptionValue::Ints(values) => {
                let texts: Vec<_> = values.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", texts.join(","))
            }
            OptionValue::Text(value) if OptionValue::parse(value) == self.value => f.write_str(value),
            OptionValue::Text(value) => write!(f, "\"{value}\""),
        }
    }
}

impl OptionValue {
    fn parse(text: &str) -> Self {
        let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        if let Some(inner) = quoted {
            return Self::Text(inner.into());
        }
        let list = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(list) = list
            && let Ok(values) = list.split(',').map(|number| number.trim().parse()).collect()
        {
            return Self::Ints(values);
        }
        if let Ok(value) = text.parse() {
            return Self::Int(value);
        }
        if let Ok(value) = text.parse() {
            return Self::Bool(value);
        }
        // `inf` and `nan` are text, although `f32` parses them.
        let is_number = text.bytes().all(|b| b.is_ascii_digit() || b"+-.e".contains(&b));
        if is_number && let Ok(value) = text.parse() {
            return Self::Float(value);
        }
        Self::Text(text.into())
    }
}

impl PluginOption {
    /// The option as a C struct. The option must outlive every use of the result.
    pub(super) fn to_raw(&self) -> sys::PJRT_NamedValue {
        let mut raw = *args!(PJRT_NamedValue {
            name: self.name.as_ptr().cast(),
            name_size: self.name.len(),
            value_size: 1,
        });
        let value = &mut raw.__bindgen_anon_1;
        match &self.value {
            OptionValue::Int(int) => {
                raw.type_ = sys::PJRT_NamedValue_Type::PJRT_NamedValue_kInt64;
                value.int64_value = *int;
            }
            OptionValue::Float(float) => {
                raw.type_ = sys::PJRT_NamedValue_Type::PJRT_NamedValue_kFloat;
                value.float_value = *float;
            }
            OptionValue::Bool(bool) => {
                raw.type_ = sys::PJRT_NamedValue_Type::PJRT_NamedValue_kBool;
                value.bool_value = *bool;
            }
            OptionValue::Ints(values) => {
                raw.type_ = sys::PJRT_NamedValue_Type::PJRT_NamedValue_kInt64List;
                value.int64_array_value = values.as_ptr();
                raw.value_size = values.len();
            }
            OptionValue::Text(text) => {
                raw.type_ = sys::PJRT_NamedValue_Type::PJRT_NamedValue_kString;
                value.string_value = text.as_ptr().cast();
                raw.value_size = text.len();
            }
        }
        // `args!` counts the zeros that it puts after a struct. An element of an array has no such zeros.
        raw.struct_size = size_of::<sys::PJRT_NamedValue>();
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_value_determines_its_type() {
        use OptionValue::{Bool, Float, Int, Ints, Text};
        for (text, value) in [
            ("n=8", Int(8)),
            ("n=-3", Int(-3)),
            ("n=0.75", Float(0.75)),
            ("n=true", Bool(true)),
            ("n=false", Bool(false)),
            ("n=cuda_async", Text("cuda_async".into())),
            ("n=", Text(String::new())),
            ("n=\"8\"", Text("8".into())),
            ("n=a=b", Text("a=b".into())),
            ("n=inf", Text("inf".into())),
            ("n=[0,-1,12]", Ints(vec![0, -1, 12])),
            ("n=[a]", Text("[a]".into())),
        ] {
            let option: PluginOption = text.parse().unwrap();
            assert_eq!((option.name.as_str(), &option.value), ("n", &value), "{text}");
            assert_eq!(option.to_string(), text);
            assert_eq!(option.to_string().parse(), Ok(option));
        }
        for text in ["", "n", "=8"] {
            assert!(text.parse::<PluginOption>().unwrap_err().to_string().contains("name=value"));
        }
    }

    #[test]
    fn the_c_struct_has_the_name_type_and_value() {
        use super::super::abi::text;
        let count = PluginOption::from(("cpu_device_count", 8));
        let raw = count.to_raw();
        // SAFETY: the name is alive and has this length, and the value is an integer.
        let (name, value) = unsafe { (text(raw.name, raw.name_size), raw.__bindgen_anon_1.int64_value) };
        assert_eq!((name.as_str(), value, raw.value_size), ("cpu_device_count", 8, 1));
        let allocator: PluginOption = "allocator=bfc".parse().unwrap();
        let raw = allocator.to_raw();
        assert_eq!(raw.type_, sys::PJRT_NamedValue_Type::PJRT_NamedValue_kString);
        // SAFETY: the value is a text, which is alive and has this length.
        assert_eq!(unsafe { text(raw.__bindgen_anon_1.string_value, raw.value_size) }, "bfc");
    }
}
