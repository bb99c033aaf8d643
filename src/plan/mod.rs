//! In which order: the pure epoch plan and the splitters.
