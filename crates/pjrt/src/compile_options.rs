//! Compile options, encoded as a protocol buffer.

use super::protobuf::Message;

/// The devices that a program is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// The first devices of the whole job.
    Job,
    /// The first devices of this process.
    Process,
}

/// The number of devices that a program runs on: replicas times partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileOptions {
    /// Number of copies that run the same program independently.
    pub replicas: usize,
    /// Number of devices that run one copy of the program together. Sharding annotations in the program say
    /// how its data is split among them.
    pub partitions: usize,
}

impl Default for CompileOptions {
    /// One device.
    fn default() -> Self {
        Self { replicas: 1, partitions: 1 }
    }
}

impl CompileOptions {
    /// The number of devices that the program runs on.
    pub fn devices(&self) -> usize {
        self.replicas * self.partitions
    }

    /// Encodes `xla.CompileOptionsProto`. `device_ids` is empty if the compiler is to choose the devices;
    /// otherwise it has the id of each device, ordered by replica and then by partition.
    pub(super) fn encode(&self, device_ids: &[i64]) -> Vec<u8> {
        // xla.ExecutableBuildOptionsProto
        let mut build = Message::default();
        build.int(1, -1); // device_ordinal: none
        build.int(4, self.replicas as i64); // num_replicas
        build.int(5, self.partitions as i64); // num_partitions
        if self.partitions > 1 {
            build.int(6, 1); // use_spmd_partitioning
        }
        if !device_ids.is_empty() {
            build.message(9, &self.assignment(device_ids)); // device_assignment
        }
        if self.partitions > 1 {
            build.int(19, 1); // use_shardy_partitioner
        }
        let mut options = Message::default();
        options.message(3, &build); // executable_build_options
        options.into_bytes()
    }

    /// Encodes `xla.DeviceAssignmentProto`: it lists, for each partition ("computation"), the device of each
    /// replica.
    fn assignment(&self, device_ids: &[i64]) -> Message {
        let mut assignment = Message::default();
        assignment.int(1, self.replicas as i64); // replica_count
        assignment.int(2, self.partitions as i64); // computation_count
        for partition in 0..self.partitions {
            let mut computation = Message::default();
            for id in device_ids.iter().skip(partition).step_by(self.partitions) {
                computation.int(1, *id); // replica_device_ids
            }
            assignment.message(3, &computation); // computation_devices
        }
        assignment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_ORDINAL: [u8; 11] = [8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];

    #[test]
    fn the_default_options_are_for_one_device() {
        let mut expected = vec![0x1a, 15];
        expected.extend(NO_ORDINAL);
        expected.extend([0x20, 1, 0x28, 1]);
        assert_eq!(CompileOptions::default().encode(&[]), expected);
    }

    #[test]
    fn partitions_use_shardy() {
        let options = CompileOptions { replicas: 1, partitions: 8 };
        let mut expected = vec![0x1a, 20];
        expected.extend(NO_ORDINAL);
        expected.extend([0x20, 1, 0x28, 8, 0x30, 1, 0x98, 1, 1]);
        assert_eq!(options.encode(&[]), expected);
    }

    #[test]
    fn consecutive_devices_are_partitions_of_the_same_replica() {
        let options = CompileOptions { replicas: 2, partitions: 2 };
        let assignment = options.assignment(&[10, 11, 12, 13]).into_bytes();
        assert_eq!(assignment, [8, 2, 16, 2, 0x1a, 4, 8, 10, 8, 12, 0x1a, 4, 8, 11, 8, 13]);
        assert_eq!(options.devices(), 4);
    }
}
