//! Finds the columns of a file's schema, and chooses those to read.

use bytestring::ByteString;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{BasicTypeInfo, SchemaDescriptor, Type};
use shardstream::codec::DType;

/// A column of the file, with one value or one list in each row. A list or map that cannot be read is a
/// `Column` too. A struct is not a `Column`; each column in the struct is one.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// The name of the field: the names of the structs around the column, and its own, with dots between
    /// them.
    pub(crate) name: ByteString,
    /// The lengths of the full names of the structs around the column: 5 and 10 for the name `image.size.h`.
    /// `name` begins with each of these full names.
    structs: Vec<usize>,
    /// The number of the column among the schema's leaf columns: the columns that store values. If the column
    /// has several leaf columns, as a map has, `leaf` is the number of the first.
    pub(crate) leaf: usize,
    /// The type of the values, or why they cannot be read.
    pub(crate) values: Result<Values, &'static str>,
}

/// The type of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) kind: ValueKind,
    /// If the column is a list, the lowest definition level at which the list has an element. The element may
    /// be null at this level.
    pub(crate) list: Option<i16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// Texts and other bytes.
    Bytes,
    /// Integers or booleans of this type.
    Int(DType),
    /// Floating-point numbers of this type.
    Float(DType),
}

/// Returns the columns of a schema, in the order of the schema.
pub(crate) fn columns(schema: &SchemaDescriptor) -> Vec<Column> {
    let mut found = Vec::new();
    let mut walk = SchemaWalk { leaf: 0, structs: Vec::new(), found: &mut found };
    for column in schema.root_schema().get_fields() {
        walk.column(column, column.name().to_owned(), 0);
    }
    found
}

/// The columns that are read.
#[derive(Debug)]
pub(crate) struct ChosenColumns {
    /// First the fields, in the order of the schema, then the key column if it is not a field.
    pub(crate) columns: Vec<Column>,
    /// Number of columns that are fields.
    pub(crate) fields: usize,
    /// The index of the key column in `columns`.
    pub(crate) key: Option<usize>,
}

impl ChosenColumns {
    /// Chooses the columns of these names, or all columns if `names` is `None`. The name of a struct chooses
    /// all columns in it.
    pub(crate) fn new(
        columns: &[Column],
        names: Option<&[String]>,
        key: Option<&str>,
    ) -> Result<Self, String> {
        // If a column has exactly this name, a struct of this name is not chosen.
        let is_column = |name: &str| columns.iter().any(|column| column.name == name);
        let is_of = |column: &Column, name: &str| match is_column(name) {
            true => column.name == name,
            false => column.structs.contains(&name.len()) && column.name.starts_with(name),
        };
        let known =
            || columns.iter().map(|column| format!("{:?}", &*column.name)).collect::<Vec<_>>().join(", ");
        for name in names.into_iter().flatten() {
            if !columns.iter().any(|column| is_of(column, name)) {
                return Err(format!("it has no column {name:?}, but {}", known()));
            }
        }
        let is_wanted =
            |column: &&Column| names.is_none_or(|names| names.iter().any(|name| is_of(column, name)));
        let mut found: Vec<Column> = columns.iter().filter(is_wanted).cloned().collect();
        let fields = found.len();
        if fields == 0 {
            return Err("no column of it is read".into());
        }
        let key = match key {
            None => None,
            Some(key) => Some(match found.iter().position(|column| column.name == key) {
                Some(number) => number,
                None => {
                    let column = columns.iter().find(|column| column.name == key);
                    let column = column
                        .ok_or_else(|| format!("it has no column {key:?} for keys, but {}", known()))?;
                    found.push(column.clone());
                    found.len() - 1
                }
            }),
        };
        for (number, column) in found.iter().enumerate() {
            if let Err(why) = column.values {
                return Err(format!(
                    "its column {:?} is {why}: choose others by `Parquet::columns`, or write another type",
                    &*column.name
                ));
            }
            if found[..number].iter().any(|other| other.name == column.name) {
                return Err(format!("it has two columns {:?}", &*column.name));
            }
        }
        Ok(ChosenColumns { columns: found, fields, key })
    }
}

struct SchemaWalk<'a> {
    /// The number of the next leaf column.
    leaf: usize,
    /// The lengths of the full names of the structs around the current column.
    structs: Vec<usize>,
    found: &'a mut Vec<Column>,
}

impl SchemaWalk<'_> {
    /// Adds a column, or the columns of a struct. `level` is the definition level of the struct around it.
    fn column(&mut self, column: &Type, name: String, level: i16) {
        let info = column.get_basic_info();
        let level = match repetition(info) {
            Repetition::REQUIRED => level,
            _ => level.saturating_add(1),
        };
        match (column, repetition(info)) {
            (Type::PrimitiveType { .. }, Repetition::REPEATED) => self.values(column, name, Some(level)),
            (Type::PrimitiveType { .. }, _) => self.values(column, name, None),
            (_, Repetition::REPEATED) => self.refused(column, name, "a list of structs"),
            (Type::GroupType { .. }, _) if is(info, ConvertedType::LIST, &LogicalType::List) => {
                self.list(column, name, level);
            }
            (Type::GroupType { .. }, _) if is(info, ConvertedType::MAP, &LogicalType::Map) => {
                self.refused(column, name, "a map");
            }
            (Type::GroupType { fields, .. }, _) => {
                self.structs.push(name.len());
                for field in fields {
                    self.column(field, format!("{name}.{}", field.name()), level);
                }
                self.structs.pop();
            }
        }
    }

    /// Adds a list. In the schema, a list is a group with one repeated child, which is the element or a group
    /// that contains the element.
    fn list(&mut self, list: &Type, name: String, level: i16) {
        let Type::GroupType { fields, .. } = list else { return };
        let [repeated] = &fields[..] else { return self.refused(list, name, "a list of structs") };
        if repetition(repeated.get_basic_info()) != Repetition::REPEATED {
            return self.refused(list, name, "a list without repeated elements");
        }
        let level = level.saturating_add(1);
        match &**repeated {
            Type::PrimitiveType { .. } => self.values(repeated, name, Some(level)),
            Type::GroupType { fields, .. } => match &fields[..] {
                [element] if repetition(element.get_basic_info()) == Repetition::REPEATED => {
                    self.refused(list, name, "a list of lists");
                }
                [element] if element.is_primitive() => self.values(element, name, Some(level)),
                _ => self.refused(list, name, "a list of lists or structs"),
            },
        }
    }

    fn values(&mut self, column: &Type, name: String, list: Option<i16>) {
        let values = kind(column).and_then(|kind| match (kind, list) {
            (ValueKind::Bytes, Some(_)) => Err("a list of texts or bytes"),
            (kind, list) => Ok(Values { kind, list }),
        });
        self.push(name, values);
        self.leaf += 1;
    }

    fn refused(&mut self, column: &Type, name: String, why: &'static str) {
        self.push(name, Err(why));
        self.leaf += leaves(column);
    }

    fn push(&mut self, name: String, values: Result<Values, &'static str>) {
        let (leaf, structs) = (self.leaf, self.structs.clone());
        self.found.push(Column { name: name.into(), structs, leaf, values });
    }
}

fn leaves(column: &Type) -> usize {
    match column {
        Type::PrimitiveType { .. } => 1,
        Type::GroupType { fields, .. } => fields.iter().map(|field| leaves(field)).sum(),
    }
}

fn repetition(info: &BasicTypeInfo) -> Repetition {
    if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED }
}

fn is(info: &BasicTypeInfo, converted: ConvertedType, logical: &LogicalType) -> bool {
    info.converted_type() == converted || info.logical_type_ref() == Some(logical)
}

/// The type of a column's values. For a list, `column` is its element.
fn kind(column: &Type) -> Result<ValueKind, &'static str> {
    let info = column.get_basic_info();
    let (converted, logical) = (info.converted_type(), info.logical_type_ref());
    if converted == ConvertedType::DECIMAL || matches!(logical, Some(LogicalType::Decimal(_))) {
        return Err("of decimal numbers");
    }
    let Type::PrimitiveType { physical_type, type_length, .. } = column else { return Err("a struct") };
    Ok(match physical_type {
        Physical::BOOLEAN => ValueKind::Int(DType::Bool),
        Physical::INT32 => ValueKind::Int(integer(converted, logical).unwrap_or(DType::I32)),
        Physical::INT64 => ValueKind::Int(integer(converted, logical).unwrap_or(DType::I64)),
        Physical::INT96 => return Err("of timestamps of 96 bits"),
        Physical::FLOAT => ValueKind::Float(DType::F32),
        Physical::DOUBLE => ValueKind::Float(DType::F64),
        Physical::BYTE_ARRAY => ValueKind::Bytes,
        Physical::FIXED_LEN_BYTE_ARRAY => match logical {
            Some(LogicalType::Float16) if *type_length == 2 => ValueKind::Float(DType::F16),
            _ => ValueKind::Bytes,
        },
    })
}

/// The integer type that the schema declares for a column; `None` if it declares none.
fn integer(converted: ConvertedType, logical: Option<&LogicalType>) -> Option<DType> {
    let (bits, is_signed) = match (logical, converted) {
        (Some(LogicalType::Integer(int)), _) => (int.bit_width, int.is_signed),
        (_, ConvertedType::INT_8) => (8, true),
        (_, ConvertedType::INT_16) => (16, true),
        (_, ConvertedType::UINT_8) => (8, false),
        (_, ConvertedType::UINT_16) => (16, false),
        (_, ConvertedType::UINT_32) => (32, false),
        (_, ConvertedType::UINT_64) => (64, false),
        _ => return None,
    };
    Some(match (bits, is_signed) {
        (8, true) => DType::I8,
        (16, true) => DType::I16,
        (8, false) => DType::U8,
        (16, false) => DType::U16,
        (32, false) => DType::U32,
        (64, false) => DType::U64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    #[test]
    fn the_name_of_a_struct_stands_for_its_columns_unless_a_column_has_it() {
        let message = "message m {
            required group image { required int32 path; required group size { required int32 h; } }
            required int32 image.kind;
            required int32 images;
            required group a { required int32 b; required int32 c; }
            required int32 a;
        }";
        let columns = columns(&SchemaDescriptor::new(Arc::new(parse_message_type(message).unwrap())));
        let chosen = |name: &str| -> Result<Vec<String>, String> {
            let chosen = ChosenColumns::new(&columns, Some(&[name.to_owned()]), None)?;
            Ok(chosen.columns.iter().map(|column| column.name.to_string()).collect())
        };
        assert_eq!(chosen("image").unwrap(), ["image.path", "image.size.h"]);
        assert_eq!(chosen("image.size").unwrap(), ["image.size.h"]);
        assert_eq!(chosen("image.kind").unwrap(), ["image.kind"]);
        assert_eq!(chosen("a").unwrap(), ["a"], "and not the columns of the struct");
        assert!(chosen("imag").is_err() && chosen("image.").is_err() && chosen("image.k").is_err());
    }
}
