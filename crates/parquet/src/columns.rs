//! The columns of a file that are fields of its samples.

use bytestring::ByteString;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{BasicTypeInfo, SchemaDescriptor, Type};
use shardstream::codec::DType;

/// A column of the file, or a part of one whose type cannot be read.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// The name of its field: those of the columns that it is in, with dots between them.
    pub(crate) name: ByteString,
    /// The lengths of the names of the structs that it is in, which `name` begins with.
    structs: Vec<usize>,
    /// Its number among the columns that have values.
    pub(crate) leaf: usize,
    /// What its values are, or why they cannot be read.
    pub(crate) values: Result<Values, &'static str>,
}

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) kind: ValueKind,
    /// For a list, the definition level of an element.
    pub(crate) list: Option<i16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// Texts and other bytes.
    Bytes,
    /// Whole numbers, which are integers or booleans of this type.
    Int(DType),
    /// Numbers with a fraction.
    Float(DType),
}

/// The columns of a schema, in its order.
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
    /// First the fields, in the order of the schema, then the key if it is no field.
    pub(crate) columns: Vec<Column>,
    /// Number of columns that are fields.
    pub(crate) fields: usize,
    /// The number of the column that is the key.
    pub(crate) key: Option<usize>,
}

impl ChosenColumns {
    /// The columns of these names, or all of them. A name is that of a field, or of a column that has others
    /// in it.
    pub(crate) fn new(
        columns: &[Column],
        names: Option<&[String]>,
        key: Option<&str>,
    ) -> Result<Self, String> {
        // A column of a name with a dot is not taken for one in a struct.
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
    /// The number of the next column with values.
    leaf: usize,
    /// The lengths of the names of the structs that the column is in.
    structs: Vec<usize>,
    found: &'a mut Vec<Column>,
}

impl SchemaWalk<'_> {
    /// Adds a column, or those in it. `level` is the definition level of what it is in.
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

    /// Adds a list: a group around one repeated column, which is the element or a group around it.
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

/// What the values of a column are, without regard to lists.
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

/// The type of integers that the file says, if it says one.
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
