//! The options of the group "Network".

use crate::artifact::DType;
use crate::compile::CacheLocation;
use crate::plugin::PluginChoice;
use clap::Args;
use shardstream_pjrt::PluginOption;

/// The options of the program and its devices.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Network", about = None, long_about = None)]
pub struct NetworkArgs {
    /// Exported program, by name (resnet8, resnet50-224-bf16-x8 …) or by path, without .json. If this option
    /// is not set, the other options of this group choose a built-in program, by default resnet8
    #[arg(long, value_name = "NAME|PATH")]
    pub artifact: Option<String>,
    /// Network: resnet8, resnet18, resnet20, resnet50
    #[arg(long, conflicts_with = "artifact")]
    pub model: Option<String>,
    /// Height and width of the images: 32, 224
    #[arg(long, value_name = "PIXELS", conflicts_with = "artifact")]
    pub image_size: Option<usize>,
    /// f32 or bf16
    #[arg(long, conflicts_with = "artifact")]
    pub dtype: Option<DType>,
    /// Images for each device and step
    #[arg(long, value_name = "IMAGES", conflicts_with = "artifact")]
    pub batch_size: Option<usize>,
    /// Devices of all processes together
    #[arg(long, conflicts_with = "artifact")]
    pub devices: Option<usize>,
    /// cpu, cuda or tpu, or the path of a PJRT plugin (a shared library). If this option is not set, the
    /// plugin of this machine's TPU or GPU is used, or else of the CPU. The plugins for cuda (3.2 GB) and cpu
    /// (64 MB) are downloaded the first time
    #[arg(long, value_name = "KIND|PATH")]
    pub plugin: Option<PluginChoice>,
    /// An option that the plugin gets when it opens its devices; may be given several times
    #[arg(long = "plugin-option", value_name = "NAME=VALUE")]
    pub plugin_options: Vec<PluginOption>,
    /// Directory that keeps compiled programs for the next start, or `off`; `compiled` in the work directory
    /// unless set. Give no other user write access to this directory: the trainer runs the code in it
    #[arg(long, value_name = "DIR|off")]
    pub compile_cache: Option<CacheLocation>,
    /// Compile for TPU topologies, for example v3:2x2,v5e:2x4, print the size of the code, and exit; needs
    /// libtpu but no TPU
    #[arg(long, value_name = "TOPOLOGY,...", value_delimiter = ',')]
    pub compile_only: Vec<String>,
}
