//! The configuration in force. A reload replaces the whole configuration. Each call uses one
//! configuration from its first check to its answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use leasehold_core::cell::CellId;
use leasehold_core::rules::Rules;
use leasehold_proto::gitlab::cells::topology_service::{CellInfo, GetCellsResponse, SequenceRange};

use crate::config::{self, CellConfig, Config};

/// A checked configuration, and values computed from it once, so that calls need not compute them.
#[derive(Debug)]
pub struct ActiveConfig {
    /// The checked configuration.
    pub config: Config,
    /// The bucket types and cells, as the engine's rules.
    pub rules: Rules,
    cells: BTreeMap<CellId, CellInfo>,
    // The address at which each cell serves Pages, for the cells that serve Pages.
    pages: BTreeMap<CellId, String>,
    /// The cell that `Classify` returns for the type `FIRST_CELL`; `None` if there is no cell.
    pub default_cell: Option<CellId>,
}

impl ActiveConfig {
    /// Computes the values that calls use from a checked configuration.
    pub fn new(config: Config) -> Self {
        let cells = config.cells();
        Self {
            rules: config.rules(),
            default_cell: config.default_cell(),
            pages: cells.iter().filter_map(|(id, cell)| Some((*id, cell.pages_address.clone()?))).collect(),
            cells: cells.into_iter().map(|(id, cell)| (id, cell_info(cell))).collect(),
            config,
        }
    }

    /// The cell with this id as a wire message; `None` if the cell is not configured.
    pub fn cell(&self, id: CellId) -> Option<CellInfo> {
        self.cells.get(&id).cloned()
    }

    /// The configured cells as wire messages, in the order of their ids.
    pub fn cells(&self) -> impl Iterator<Item = &CellInfo> {
        self.cells.values()
    }

    /// The configured cells as a response.
    pub fn all_cells(&self) -> GetCellsResponse {
        GetCellsResponse { cells: self.cells().cloned().collect() }
    }

    /// The address at which a cell serves Pages; `None` if the cell serves no Pages.
    pub fn pages_address(&self, cell: CellId) -> Option<String> {
        self.pages.get(&cell).cloned()
    }
}

/// The holder of the configuration in force, which all parts of a server share.
#[derive(Debug)]
pub struct CurrentConfig(ArcSwap<ActiveConfig>);

impl CurrentConfig {
    /// Puts the first configuration in force.
    pub fn new(config: Config) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(ActiveConfig::new(config))))
    }

    /// The configuration in force now. A call must load it once and keep it, so that a reload
    /// during the call does not mix two configurations.
    pub fn load(&self) -> Arc<ActiveConfig> {
        self.0.load_full()
    }

    /// Puts another configuration in force.
    pub fn replace(&self, config: Config) {
        self.0.store(Arc::new(ActiveConfig::new(config)));
    }
}

fn cell_info(cell: CellConfig) -> CellInfo {
    let range = |range: &config::SequenceRange| SequenceRange { minval: range.minval, maxval: range.maxval };
    let sequence_ranges: Vec<_> = cell.ranges().iter().map(range).collect();
    CellInfo {
        id: cell.id,
        name: cell.name,
        address: cell.address,
        session_prefix: cell.session_prefix,
        sequence_range: sequence_ranges.first().copied(),
        sequence_ranges,
    }
}
