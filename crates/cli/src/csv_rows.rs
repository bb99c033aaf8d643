//! Parses the rows of CSV (RFC 4180) and of tab-separated values.

/// How the cells of a row are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CellFormat {
    /// Cells are separated by commas. A cell in quotes may have commas, line breaks and doubled quotes.
    Csv,
    /// Cells are separated by tabs. A quote is an ordinary character, and a cell cannot have tabs or line
    /// breaks.
    Tsv,
}

/// A parser of the rows of a document.
pub(crate) struct CsvRows<'a> {
    rest: &'a str,
    /// Number of the line, from 1, at which `rest` begins.
    pub(crate) line: usize,
    format: CellFormat,
}

impl<'a> CsvRows<'a> {
    pub(crate) fn new(document: &'a str, format: CellFormat) -> Self {
        CsvRows { rest: document.strip_prefix('\u{feff}').unwrap_or(document), line: 1, format }
    }

    /// The next row, with the number of the line at which it begins.
    pub(crate) fn next_row(&mut self) -> Result<Option<(usize, Vec<String>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let line = self.line;
        let separator = if self.format == CellFormat::Csv { ',' } else { '\t' };
        let mut row = Vec::new();
        loop {
            let quoted = self.rest.strip_prefix('"').filter(|_| self.format == CellFormat::Csv);
            let cell = match quoted {
                Some(rest) => {
                    self.rest = rest;
                    self.quoted()?
                }
                None => {
                    let end = self.rest.find([separator, '\n']).unwrap_or(self.rest.len());
                    let (cell, rest) = self.rest.split_at(end);
                    self.rest = rest;
                    let ends = !rest.starts_with(separator);
                    if ends { cell.strip_suffix('\r').unwrap_or(cell) } else { cell }.to_owned()
                }
            };
            row.push(cell);
            if let Some(rest) = self.rest.strip_prefix(separator) {
                self.rest = rest;
                continue;
            }
            let end = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n'));
            match end {
                Some(rest) => self.rest = rest,
                None if self.rest.is_empty() => {}
                None => return Err("text after a closing quote".into()),
            }
            self.line += 1;
            return Ok(Some((line, row)));
        }
    }

    /// Parses the rest of a quoted cell after its opening quote. Two quotes in the cell are read as one
    /// quote.
    fn quoted(&mut self) -> Result<String, String> {
        let mut cell = String::new();
        loop {
            let Some(end) = self.rest.find('"') else { return Err("a quote is not closed".into()) };
            let (text, rest) = (&self.rest[..end], &self.rest[end + 1..]);
            self.line += text.matches('\n').count();
            cell.push_str(text);
            match rest.strip_prefix('"') {
                Some(after) => {
                    cell.push('"');
                    self.rest = after;
                }
                None => {
                    self.rest = rest;
                    return Ok(cell);
                }
            }
        }
    }
}
