//! Limits the size and the depth of a schema before the decoder uses memory and stack for it.

use crate::thrift::{BINARY, CompactReader, INTEGERS, LIST};

/// Maximum depth of nested structs in a schema.
const MAX_SCHEMA_DEPTH: usize = 64;
/// Maximum sum of the lengths in bytes of the full names of all columns.
const MAX_NAMES: u64 = 16 << 20;

/// Checks that the decoder needs little memory and no deep stack for the schema in a file's metadata.
///
/// The schema is a flat list. A struct in it declares the number of its children, which follow the struct in
/// the list. The decoder calls itself for each struct and allocates memory for the declared number of
/// children. For each column, it builds a full name from the names of all structs around the column.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    let elements = schema(&mut CompactReader::new(bytes)).ok_or("its schema is damaged")?;
    // The structs around the current element: for each, the number of its children that have not been read,
    // and the length of its full name.
    let mut open: Vec<(u64, u64)> = Vec::new();
    let mut names = 0_u64;
    for (number, element) in elements.iter().enumerate() {
        while open.last().is_some_and(|(wanted, _)| *wanted == 0) {
            open.pop();
        }
        let mut length = element.name;
        if let Some((wanted, parent)) = open.last_mut() {
            *wanted -= 1;
            length = length.saturating_add(*parent).saturating_add(1);
        }
        let left = (elements.len() - number - 1) as u64;
        match u64::try_from(element.children).ok().filter(|children| *children <= left) {
            None => {
                let children = element.children;
                return Err(format!("a struct of {children} columns in its schema, of which {left} follow"));
            }
            Some(0) => names = names.saturating_add(length),
            Some(_) if open.len() == MAX_SCHEMA_DEPTH => {
                return Err(format!("more than {MAX_SCHEMA_DEPTH} structs within structs in its schema"));
            }
            Some(children) => open.push((children, length)),
        }
        if names > MAX_NAMES {
            return Err(format!("the names of its columns have more than {MAX_NAMES} bytes"));
        }
    }
    Ok(())
}

/// An element of a schema.
#[derive(Default)]
struct SchemaElement {
    /// The length of the element's name in bytes.
    name: u64,
    /// The declared number of the element's children.
    children: i64,
}

/// Reads the elements of the schema from a file's metadata.
fn schema(input: &mut CompactReader<'_>) -> Option<Vec<SchemaElement>> {
    let (mut elements, mut field) = (Vec::new(), 0);
    while let Some(kind) = input.field(&mut field)? {
        if (field, kind) != (2, LIST) {
            input.skip(kind, 0)?;
            continue;
        }
        let head = input.byte()?;
        for _ in 0..input.count(head)? {
            elements.push(schema_element(input)?);
        }
    }
    Some(elements)
}

fn schema_element(input: &mut CompactReader<'_>) -> Option<SchemaElement> {
    let (mut element, mut field) = (SchemaElement::default(), 0);
    while let Some(kind) = input.field(&mut field)? {
        match (field, kind) {
            (4, BINARY) => {
                element.name = input.varint()?;
                input.advance(element.name)?;
            }
            (5, INTEGERS) => element.children = input.integer()?,
            (_, kind) => input.skip(kind, 0)?,
        }
    }
    Some(element)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thrift::is_metadata;

    /// File metadata whose schema has these elements, each with its name and its number of children.
    fn metadata(elements: &[(&str, u64)]) -> Vec<u8> {
        let number = |bytes: &mut Vec<u8>, mut number: u64| {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        };
        let mut bytes = vec![0x15, 4, 0x19, 0xfc];
        number(&mut bytes, elements.len() as u64);
        for (name, children) in elements {
            bytes.push(0x48);
            number(&mut bytes, name.len() as u64);
            bytes.extend(name.as_bytes());
            bytes.push(0x15);
            number(&mut bytes, children * 2);
            bytes.push(0);
        }
        bytes.extend([0x16, 10, 0]);
        assert!(is_metadata(&bytes));
        bytes
    }

    #[test]
    fn a_schema_that_takes_much_memory_to_decode_is_an_error() {
        let check = |elements: &[(&str, u64)]| super::check(&metadata(elements));
        assert_eq!(check(&[("root", 3), ("a", 0), ("b", 2), ("x", 0), ("y", 0), ("c", 0)]), Ok(()));
        let deep = |depth| {
            let mut elements = vec![("s", 1); depth];
            elements.push(("x", 0));
            check(&elements)
        };
        assert_eq!(deep(MAX_SCHEMA_DEPTH), Ok(()));
        assert!(deep(MAX_SCHEMA_DEPTH + 1).unwrap_err().contains("structs within structs"));
        assert!(deep(100_000).is_err());
        assert!(check(&[("root", (1 << 31) - 1), ("a", 0)]).unwrap_err().contains("of which 1 follow"));
        assert!(check(&[("root", 1), ("s", 1)]).is_err());
        // The long name of the struct is part of the full name of each column.
        let long = "n".repeat(1 << 20);
        let mut wide = vec![("root", 1), (long.as_str(), 15)];
        wide.extend([("x", 0); 15]);
        assert_eq!(check(&wide), Ok(()));
        wide[1].1 = 20;
        wide.extend([("x", 0); 5]);
        assert!(check(&wide).unwrap_err().contains("names"));
    }
}
