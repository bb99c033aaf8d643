//! Reads the pickles of CIFAR-10 without running any code that they name.
//!
//! A pickle is a program for a small stack machine. Python's machine calls any function that a pickle names.
//! This machine knows the results of the five functions that a numpy array needs, and refuses every other
//! name. It builds numbers, strings, lists, tuples, dictionaries and arrays of bytes, in about as much memory
//! as the file's size.

use std::borrow::Cow;
use std::collections::HashMap;

/// Maximum number of values in a pickle. A batch of CIFAR-10 has about 20 000.
const MAX_VALUES: usize = 1 << 20;
/// Maximum number of dimensions of an array.
const MAX_DIMENSIONS: usize = 8;

/// An error of reading a pickle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PickleError {
    /// The pickle is truncated.
    #[error("the pickle ends in the middle")]
    Truncated,
    /// The pickle has an operation that is not needed for plain values and arrays.
    #[error("byte {at} is the operation {opcode:#04x}, which plain values and arrays do not need")]
    Opcode {
        /// The operation.
        opcode: u8,
        /// The position of the operation in bytes.
        at: usize,
    },
    /// The pickle names a function other than the functions that build a numpy array. The function was not
    /// called.
    #[error("it names {module}.{name}, which does not build an array, and is not called")]
    Global {
        /// The Python module.
        module: String,
        /// The name of the function.
        name: String,
    },
    /// The pickle is malformed.
    #[error("bad pickle at byte {at}: {what}")]
    Malformed {
        /// The position of the failed operation in bytes.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The pickle has more values or larger strings than any batch of CIFAR-10.
    #[error("the pickle has too many values, or too large strings, at byte {at}")]
    TooLarge {
        /// The position of the failed operation in bytes.
        at: usize,
    },
}

/// The index of a node.
type Id = u32;

#[derive(Debug)]
enum Node<'a> {
    None,
    Bool(bool),
    Int(i64),
    Bytes(Cow<'a, [u8]>),
    Text(&'a str),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Function(Function),
    /// The numpy type `u1`, the only known type of arrays.
    Type,
    /// An array of bytes; `None` before the operation `BUILD`.
    Array(Option<Array>),
}

#[derive(Debug)]
struct Array {
    shape: Vec<usize>,
    data: Id,
}

/// The functions whose results are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Reconstruct,
    Ndarray,
    Dtype,
    FromBuffer,
    Encode,
}

impl Function {
    fn named(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => Self::Reconstruct,
            ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer") => Self::FromBuffer,
            ("numpy", "ndarray") => Self::Ndarray,
            ("numpy", "dtype") => Self::Dtype,
            ("_codecs", "encode") => Self::Encode,
            _ => return None,
        })
    }
}

/// The values of a pickle.
#[derive(Debug)]
pub struct Pickle<'a> {
    nodes: Vec<Node<'a>>,
    root: Id,
}

/// A value in a pickle.
#[derive(Debug, Clone, Copy)]
pub struct Value<'p>(&'p Pickle<'p>, Id);

impl<'a> Pickle<'a> {
    /// Reads a pickle of protocol 2 to 5. Ignores bytes after its end.
    ///
    /// # Errors
    /// [`PickleError`] if the pickle is damaged, or has other values than plain values and arrays of bytes.
    pub fn read(input: &'a [u8]) -> Result<Self, PickleError> {
        let mut machine = Machine {
            input,
            at: 0,
            operation: 0,
            nodes: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            encoded: 0,
        };
        let root = machine.run()?;
        Ok(Pickle { nodes: machine.nodes, root })
    }

    /// The pickled value.
    pub fn root(&self) -> Value<'_> {
        Value(self, self.root)
    }
}

impl<'p> Value<'p> {
    fn node(self) -> &'p Node<'p> {
        &self.0.nodes[self.1 as usize]
    }

    /// The value of a key in a dictionary. The keys may be strings of Python 2 or 3.
    pub fn get(self, key: &str) -> Option<Value<'p>> {
        let Node::Dict(entries) = self.node() else { return None };
        let is_key = |id: Id| match Value(self.0, id).node() {
            Node::Bytes(bytes) => **bytes == *key.as_bytes(),
            Node::Text(text) => *text == key,
            _ => false,
        };
        // As in Python, a later entry replaces an earlier entry of the same key.
        entries.iter().rev().find(|(id, _)| is_key(*id)).map(|(_, value)| Value(self.0, *value))
    }

    /// The numbers of a list of integers; `None` for any other value.
    pub fn integers(self) -> Option<Vec<i64>> {
        let Node::List(items) = self.node() else { return None };
        let integer = |id: &Id| match Value(self.0, *id).node() {
            Node::Int(number) => Some(*number),
            _ => None,
        };
        items.iter().map(integer).collect()
    }

    /// The shape and the bytes of an array of bytes, in row-major order; `None` for any other value.
    pub fn array(self) -> Option<(&'p [usize], &'p [u8])> {
        let Node::Array(Some(array)) = self.node() else { return None };
        let Node::Bytes(bytes) = Value(self.0, array.data).node() else { return None };
        Some((&array.shape, bytes))
    }
}

struct Machine<'a> {
    input: &'a [u8],
    at: usize,
    /// Position of the current operation in bytes.
    operation: usize,
    nodes: Vec<Node<'a>>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
    /// Total length of the strings that the function `encode` has returned. These strings are copies, not
    /// parts of the input.
    encoded: usize,
}

impl<'a> Machine<'a> {
    fn run(&mut self) -> Result<Id, PickleError> {
        loop {
            self.operation = self.at;
            match self.byte()? {
                b'.' => return self.pop(),
                0x80 => match self.byte()? {
                    2..=5 => {}
                    _ => return Err(self.malformed("a protocol other than 2 to 5")),
                },
                // This operation says how long a frame is. Only programs that read the pickle from a file
                // need the length.
                0x95 => drop(self.number::<8>()?),
                b'(' => self.marks.push(self.stack.len()),
                b'N' => self.push(Node::None)?,
                0x88 => self.push(Node::Bool(true))?,
                0x89 => self.push(Node::Bool(false))?,
                b'K' => self.unsigned::<1>()?,
                b'M' => self.unsigned::<2>()?,
                b'J' => {
                    let number = self.number::<4>()? as u32 as i32;
                    self.push(Node::Int(number.into()))?;
                }
                0x8a => self.long()?,
                b'U' | b'C' => self.bytes::<1>()?,
                b'T' | b'B' => self.bytes::<4>()?,
                0x8e | 0x96 => self.bytes::<8>()?,
                0x8c => self.text::<1>()?,
                b'X' => self.text::<4>()?,
                0x8d => self.text::<8>()?,
                b']' => self.push(Node::List(Vec::new()))?,
                b'}' => self.push(Node::Dict(Vec::new()))?,
                b')' => self.push(Node::Tuple(Vec::new()))?,
                opcode @ 0x85..=0x87 => self.tuple_of(usize::from(opcode - 0x84))?,
                b't' => {
                    let items = self.since_mark()?;
                    self.push(Node::Tuple(items))?;
                }
                b'a' => {
                    let item = self.pop()?;
                    self.extend(vec![item])?;
                }
                b'e' => {
                    let items = self.since_mark()?;
                    self.extend(items)?;
                }
                b's' => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.insert(&[key, value])?;
                }
                b'u' => {
                    let items = self.since_mark()?;
                    self.insert(&items)?;
                }
                b'q' => self.remember::<1>()?,
                b'r' => self.remember::<4>()?,
                0x94 => self.remember_at(self.memo.len() as u64)?,
                b'h' => self.recall::<1>()?,
                b'j' => self.recall::<4>()?,
                b'c' => {
                    let (module, name) = (self.line()?, self.line()?);
                    self.global(module, name)?;
                }
                0x93 => {
                    let (name, module) = (self.pop()?, self.pop()?);
                    match (self.node(module), self.node(name)) {
                        (Node::Text(module), Node::Text(name)) => self.global(module, name)?,
                        _ => return Err(self.malformed("a name that is not a string")),
                    }
                }
                b'R' => self.reduce()?,
                b'b' => self.build()?,
                opcode => return Err(PickleError::Opcode { opcode, at: self.operation }),
            }
        }
    }

    fn malformed(&self, what: &'static str) -> PickleError {
        PickleError::Malformed { at: self.operation, what }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], PickleError> {
        let rest = &self.input[self.at..];
        let bytes = rest.get(..length).ok_or(PickleError::Truncated)?;
        self.at += length;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, PickleError> {
        Ok(self.take(1)?[0])
    }

    /// Reads a little-endian number.
    fn number<const BYTES: usize>(&mut self) -> Result<u64, PickleError> {
        let bytes = self.take(BYTES)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn counted<const BYTES: usize>(&mut self) -> Result<&'a [u8], PickleError> {
        let length = self.number::<BYTES>()?;
        self.take(usize::try_from(length).map_err(|_| PickleError::Truncated)?)
    }

    fn line(&mut self) -> Result<&'a str, PickleError> {
        let rest = &self.input[self.at..];
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or(PickleError::Truncated)?;
        let line = self.take(length + 1)?;
        std::str::from_utf8(&line[..length]).map_err(|_| self.malformed("a name that is not UTF-8"))
    }

    /// Pushes a number of at most 4 bytes.
    fn unsigned<const BYTES: usize>(&mut self) -> Result<(), PickleError> {
        let number = self.number::<BYTES>()?;
        self.push(Node::Int(number as i64))
    }

    fn long(&mut self) -> Result<(), PickleError> {
        let bytes = self.counted::<1>()?;
        if bytes.len() > 8 {
            return Err(self.malformed("an integer of more than 64 bits"));
        }
        let is_negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
        let mut extended = [if is_negative { 0xff } else { 0 }; 8];
        extended[..bytes.len()].copy_from_slice(bytes);
        self.push(Node::Int(i64::from_le_bytes(extended)))
    }

    fn bytes<const BYTES: usize>(&mut self) -> Result<(), PickleError> {
        let bytes = self.counted::<BYTES>()?;
        self.push(Node::Bytes(Cow::Borrowed(bytes)))
    }

    fn text<const BYTES: usize>(&mut self) -> Result<(), PickleError> {
        let bytes = self.counted::<BYTES>()?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.malformed("a string that is not UTF-8"))?;
        self.push(Node::Text(text))
    }

    fn node(&self, id: Id) -> &Node<'a> {
        &self.nodes[id as usize]
    }

    fn push(&mut self, node: Node<'a>) -> Result<(), PickleError> {
        if self.nodes.len() >= MAX_VALUES {
            return Err(PickleError::TooLarge { at: self.operation });
        }
        self.stack.push(self.nodes.len() as Id);
        self.nodes.push(node);
        Ok(())
    }

    fn pop(&mut self) -> Result<Id, PickleError> {
        let bottom = self.marks.last().copied().unwrap_or(0);
        match self.stack.len() > bottom {
            true => self.stack.pop().ok_or(PickleError::Truncated),
            false => Err(self.malformed("the stack is empty")),
        }
    }

    /// The value on top of the stack, without removing it.
    fn top(&self) -> Result<Id, PickleError> {
        let bottom = self.marks.last().copied().unwrap_or(0);
        let above = self.stack.get(bottom..).and_then(<[Id]>::last);
        above.copied().ok_or_else(|| self.malformed("the stack is empty"))
    }

    fn since_mark(&mut self) -> Result<Vec<Id>, PickleError> {
        match self.marks.pop() {
            Some(mark) => Ok(self.stack.split_off(mark)),
            None => Err(self.malformed("there is no mark")),
        }
    }

    fn tuple_of(&mut self, count: usize) -> Result<(), PickleError> {
        let mut items = (0..count).map(|_| self.pop()).collect::<Result<Vec<Id>, PickleError>>()?;
        items.reverse();
        self.push(Node::Tuple(items))
    }

    fn extend(&mut self, items: Vec<Id>) -> Result<(), PickleError> {
        let list = self.top()?;
        match &mut self.nodes[list as usize] {
            Node::List(list) => list.extend(items),
            _ => return Err(self.malformed("only a list can be appended to")),
        }
        Ok(())
    }

    fn insert(&mut self, items: &[Id]) -> Result<(), PickleError> {
        let dict = self.top()?;
        let (pairs, rest) = items.as_chunks::<2>();
        match &mut self.nodes[dict as usize] {
            Node::Dict(entries) if rest.is_empty() => {
                entries.extend(pairs.iter().map(|[key, value]| (*key, *value)))
            }
            _ => return Err(self.malformed("pairs can only be added to a dictionary")),
        }
        Ok(())
    }

    fn remember<const BYTES: usize>(&mut self) -> Result<(), PickleError> {
        let key = self.number::<BYTES>()?;
        self.remember_at(key)
    }

    fn remember_at(&mut self, key: u64) -> Result<(), PickleError> {
        let value = self.top()?;
        self.memo.insert(key, value);
        Ok(())
    }

    fn recall<const BYTES: usize>(&mut self) -> Result<(), PickleError> {
        let key = self.number::<BYTES>()?;
        let value = self.memo.get(&key).copied();
        self.stack.push(value.ok_or_else(|| self.malformed("the memo has no entry of this number"))?);
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> Result<(), PickleError> {
        match Function::named(module, name) {
            Some(function) => self.push(Node::Function(function)),
            None => Err(PickleError::Global { module: module.into(), name: name.into() }),
        }
    }

    /// Calls a known function, which is on the stack below its arguments, and pushes the result.
    fn reduce(&mut self) -> Result<(), PickleError> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Node::Tuple(arguments), Node::Function(function)) = (self.node(arguments), self.node(function))
        else {
            return Err(self.malformed("only functions can be called, with a tuple of arguments"));
        };
        let nodes: Vec<&Node<'a>> = arguments.iter().map(|id| self.node(*id)).collect();
        let result = match (function, &nodes[..]) {
            (Function::Reconstruct, [Node::Function(Function::Ndarray), ..]) => Node::Array(None),
            (Function::Dtype, [kind, ..]) => match kind {
                Node::Text("u1" | "|u1" | "uint8") => Node::Type,
                Node::Bytes(kind) if matches!(&**kind, b"u1" | b"|u1" | b"uint8") => Node::Type,
                _ => return Err(self.malformed("an array of another type than u1")),
            },
            (Function::FromBuffer, [_, Node::Type, shape, order]) => {
                let is_row_major = match order {
                    Node::Text(order) => *order == "C",
                    Node::Bytes(order) => **order == *b"C",
                    _ => false,
                };
                if !is_row_major {
                    return Err(self.malformed("an array that is not in row-major order"));
                }
                Node::Array(Some(self.array(shape, arguments[0])?))
            }
            (Function::Encode, [Node::Text(text), Node::Text("latin1" | "latin-1")]) => {
                let bytes = text.chars().map(u8::try_from).collect::<Result<Vec<u8>, _>>();
                let bytes = bytes.map_err(|_| self.malformed("a string that is not Latin-1"))?;
                // A pickle can encode the same string many times, so the total size of the copies is limited
                // to the size of the input.
                self.encoded += bytes.len();
                if self.encoded > self.input.len() {
                    return Err(PickleError::TooLarge { at: self.operation });
                }
                Node::Bytes(Cow::Owned(bytes))
            }
            _ => {
                return Err(
                    self.malformed("a numpy function whose arguments are not those that build an array")
                );
            }
        };
        self.push(result)
    }

    /// Sets the state of an array or of its type.
    fn build(&mut self) -> Result<(), PickleError> {
        let (state, object) = (self.pop()?, self.top()?);
        let Node::Tuple(state) = self.node(state) else {
            return Err(self.malformed("a state that is not a tuple"));
        };
        match self.node(object) {
            // The state of a type has its byte order and alignment. Neither has an effect on `u1`, whose
            // elements are single bytes.
            Node::Type => Ok(()),
            Node::Array(_) => {
                let [version, shape, kind, is_column_major, data] = state[..] else {
                    return Err(self.malformed("an array whose state does not have five parts"));
                };
                match [version, kind, is_column_major].map(|id| self.node(id)) {
                    [Node::Int(1), Node::Type, Node::Bool(false) | Node::Int(0)] => {}
                    _ => return Err(self.malformed("an array of another version, type or order")),
                }
                let array = self.array(self.node(shape), data)?;
                self.nodes[object as usize] = Node::Array(Some(array));
                Ok(())
            }
            _ => Err(self.malformed("a value that has no state")),
        }
    }

    fn array(&self, shape: &Node<'a>, data: Id) -> Result<Array, PickleError> {
        let Node::Tuple(shape) = shape else { return Err(self.malformed("a shape that is not a tuple")) };
        let length = |id: &Id| match self.node(*id) {
            Node::Int(length) => usize::try_from(*length).ok(),
            _ => None,
        };
        if shape.len() > MAX_DIMENSIONS {
            return Err(self.malformed("a shape of more than 8 dimensions"));
        }
        let Some(shape) = shape.iter().map(length).collect::<Option<Vec<usize>>>() else {
            return Err(self.malformed("a shape with a length that is not a whole number"));
        };
        let expected = shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
        match self.node(data) {
            Node::Bytes(bytes) if Some(bytes.len()) == expected => Ok(Array { shape, data }),
            _ => Err(self.malformed("an array whose number of bytes does not match its shape")),
        }
    }
}
