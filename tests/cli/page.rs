//! `docs/cli.md` shows what the program does.
