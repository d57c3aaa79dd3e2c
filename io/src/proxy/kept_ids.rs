//! The ids of what engines keep (responses, conversations, files, batches): a request that names one goes to the
//! replica that made it, and gets the API's own not-found where that replica is gone or the id is another tenant's.
//! The ids of answers are noted while they pass, before the client sees them. They are written down too, so that
//! they are known after a restart: rows of a fixed size at the end of a file, which is written anew now and then.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cleave_core::cluster::FoundOut;
use cleave_core::domain::Place;
use cleave_core::kept::{KeptAt, KeptIds, KeptRow};
use cleave_core::protocol::{IdReader, KeptField, KeptPath, Peek};
use tracing::{info, warn};

use super::pool::Pool;
use super::rescue::ServeError;
use super::sharing::Sharing;
use super::table::{Route, Table};
use super::tenants::RequestTenant;
use super::visit::Visit;

/// The first row of a file; one that begins otherwise is not read.
const HEAD: KeptRow = [u64::from_be_bytes(*b"cleaveid"), 1, 0];
const ROW_BYTES: u64 = 24;
/// How many ids a router is told that knows none, and how many in one piece.
const TOLD_MAX: usize = 1 << 16;
const TOLD_AT_ONCE: usize = 1 << 10;
/// A file with more rows than this for each id that can be known is written anew.
const ROWS_PER_ID: u64 = 2;

/// What is known of ids, shared by all threads. The lock is taken once for a request that names one and once for an
/// answer that has one.
#[derive(Debug)]
pub(super) struct KeptIdTable {
    ids: Mutex<KeptIds>,
    /// Where other routers are told of ids; unset for a router that is alone.
    sharing: OnceLock<Arc<Sharing>>,
    file: Option<PathBuf>,
    /// Whether the operator was told that the file cannot be written.
    has_failed: AtomicBool,
}

/// Something that a request names by its id.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// The field of the body, or none for the path.
    pub(super) field: Option<KeptField>,
    pub(super) id: String,
}

/// The replica that keeps what a request names.
pub(super) struct Keeper {
    pub(super) place: Place,
    pub(super) pool: Arc<Pool>,
}

/// Notes the ids of one answer for their owner.
pub(super) struct IdNotes {
    reader: IdReader,
    owner: u64,
}

impl KeptIdTable {
    /// Goes on from what an earlier run at the same port left in the folder.
    pub(super) fn new(bytes_max: usize, folder: Option<&Path>, port: u16) -> Self {
        let file = folder.map(|it| it.join(format!("ids-{port}.bin")));
        let mut ids = KeptIds::new(bytes_max);
        if let Some(file) = &file {
            match restore(file, &mut ids) {
                Ok(0) => {}
                Ok(count) => info!(count, file = %file.display(), "ids restored"),
                Err(error) => warn!(file = %file.display(), %error, "ids not restored"),
            }
        }
        let (sharing, has_failed) = (OnceLock::new(), AtomicBool::new(false));
        Self { ids: Mutex::new(ids), sharing, file, has_failed }
    }

    /// Has other routers told of ids from now on.
    pub(super) fn share(&self, sharing: Arc<Sharing>) {
        _ = self.sharing.set(sharing);
    }

    fn remember(&self, owner: u64, id: &str, place: Place) {
        let row = self.lock().remember(owner, id, place);
        if let (Some(row), Some(sharing)) = (row, self.sharing.get()) {
            sharing.tell_found(FoundOut::Kept { rows: vec![row] });
        }
    }

    /// Takes on ids that another router noted.
    pub(super) fn hear(&self, rows: Vec<KeptRow>) {
        let mut ids = self.lock();
        for it in rows {
            ids.restore(it);
        }
    }

    /// Lists the ids that were used last, for a router that knows none.
    pub(super) fn told(&self) -> Vec<FoundOut> {
        let rows = self.lock().rows();
        let newest = &rows[rows.len().saturating_sub(TOLD_MAX)..];
        newest.chunks(TOLD_AT_ONCE).map(|it| FoundOut::Kept { rows: it.to_vec() }).collect()
    }

    fn find(&self, owner: u64, id: &str) -> KeptAt {
        self.lock().find(owner, id)
    }

    /// Writes down what was noted since the last call.
    pub(super) fn keep(&self) {
        let Some(file) = &self.file else { return };
        let (fresh, rows_max) = {
            let mut ids = self.lock();
            (ids.take_fresh(), ROWS_PER_ID * u64::try_from(ids.capacity()).unwrap_or(u64::MAX))
        };
        let written = match fresh {
            Some(fresh) if fresh.is_empty() => return,
            Some(fresh) => append(file, &fresh, rows_max),
            None => Ok(false),
        };
        let written = written
            .and_then(|done| if done { Ok(()) } else { write_anew(file, &self.lock().rows()) });
        if let Err(error) = written
            && !self.has_failed.swap(true, Relaxed)
        {
            warn!(file = %file.display(), %error, "ids not kept");
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeptIds> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds the replica that keeps what a request names; none if it names nothing, or an id that this router does not
/// know and that need not be another tenant's. Notes in the visit what is named.
pub(super) fn locate(
    visit: &mut Visit,
    caller: &RequestTenant<'_>,
    path: KeptPath<'_>,
    found: &Peek<'_>,
) -> Result<Option<Keeper>, ServeError> {
    visit.asked.owner = caller.salt;
    let router = &visit.router;
    for named in names(path, found) {
        match router.kept_ids.find(caller.salt, &named.id) {
            KeptAt::Replica(place) => {
                let pools = router.pools();
                let pool = pools.iter().find(|it| it.has_member_at(place));
                let Some(pool) = pool.map(Arc::clone) else { return Err(named.not_found()) };
                visit.asked.named = Some(named);
                return Ok(Some(Keeper { place, pool }));
            }
            KeptAt::Unknown if !router.tenants().are_apart() => visit.asked.named = Some(named),
            // An engine would hand out what belongs to another tenant.
            KeptAt::Unknown | KeptAt::Foreign => return Err(named.not_found()),
        }
    }
    Ok(None)
}

fn names(path: KeptPath<'_>, found: &Peek<'_>) -> Vec<Named> {
    match path {
        KeptPath::None => Vec::new(),
        KeptPath::Item { id, .. } => vec![Named { field: None, id: id.to_owned() }],
        KeptPath::Collection => {
            let named = |(field, id): (_, std::borrow::Cow<'_, str>)| Named {
                field: Some(field),
                id: id.into_owned(),
            };
            found.kept_ids().map(named).collect()
        }
    }
}

/// Finds the pool for a request. One for a single thing by its id cannot name a model.
pub(super) fn route(
    table: &Table,
    keeper: Option<&Keeper>,
    named: Option<&Named>,
    model: Option<&str>,
) -> Result<Route, ServeError> {
    match keeper {
        Some(keeper) if model.is_none() => Ok(Route::to(&keeper.pool)),
        Some(_) | None => table.route(model).map_err(|why| {
            let named = named.filter(|it| it.field.is_none() && model.is_none());
            named.map_or_else(|| ServeError::no_route(why, model), Named::not_found)
        }),
    }
}

impl Named {
    pub(super) fn not_found(&self) -> ServeError {
        ServeError::not_kept(self.field, &self.id)
    }
}

impl IdNotes {
    /// Prepares to read the answer to a request, if that may say under which id something is kept.
    pub(super) fn new(path: KeptPath<'_>, is_post: bool, stream: bool, owner: u64) -> Option<Self> {
        let is_batch = matches!(path, KeptPath::Item { is_batch: true, .. });
        let reads = is_batch || path == KeptPath::Collection && is_post;
        // A batch names the files that come of it beside itself.
        reads.then(|| Self { reader: IdReader::new(stream, is_batch), owner })
    }

    pub(super) fn on_piece(&mut self, ids: &KeptIdTable, place: Place, piece: &[u8]) {
        let owner = self.owner;
        self.reader.on_chunk(piece, |id| ids.remember(owner, id, place));
    }
}

fn restore(file: &Path, ids: &mut KeptIds) -> io::Result<usize> {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    // Twice what the file is ever let grow to.
    let rows_max = 2 * ROWS_PER_ID * u64::try_from(ids.capacity()).unwrap_or(0) + (1 << 20);
    let mut bytes = Vec::new();
    opened.take(rows_max * ROW_BYTES).read_to_end(&mut bytes)?;
    let mut rows = bytes.chunks_exact(size_of::<KeptRow>()).map(read_row);
    if !bytes.is_empty() && rows.next() != Some(HEAD) {
        return Err(io::Error::other("it is of another form"));
    }
    let count = rows.len();
    rows.for_each(|it| ids.restore(it));
    Ok(count)
}

/// Appends rows; tells whether there was room for them.
fn append(file: &Path, rows: &[KeptRow], rows_max: u64) -> io::Result<bool> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut opened = OpenOptions::new().append(true).create(true).mode(0o600).open(file)?;
    let length = opened.metadata()?.len();
    if rows_max < length / ROW_BYTES {
        return Ok(false);
    }
    let head = (length == 0).then_some(HEAD);
    opened.write_all(&written(head.into_iter().chain(rows.iter().copied())))?;
    Ok(true)
}

/// Writes all rows beside the file first, so that a crash leaves the old one whole.
fn write_anew(file: &Path, rows: &[KeptRow]) -> io::Result<()> {
    let beside = file.with_extension("new");
    fs::write(&beside, written([HEAD].into_iter().chain(rows.iter().copied())))?;
    fs::rename(&beside, file)
}

fn written(rows: impl Iterator<Item = KeptRow>) -> Vec<u8> {
    rows.flatten().flat_map(u64::to_be_bytes).collect()
}

fn read_row(bytes: &[u8]) -> KeptRow {
    let word = |at: usize| {
        let word = bytes.get(8 * at..8 * (at + 1)).and_then(|it| it.try_into().ok());
        word.map_or(0, u64::from_be_bytes)
    };
    [word(0), word(1), word(2)]
}

#[cfg(test)]
mod tests {
    use cleave_core::cluster::News;

    use super::*;
    use crate::proxy::sharing::ALL_POOLS;

    #[test]
    fn ids_that_one_router_notes_are_known_to_others() {
        let [one, other] = [(); 2].map(|()| KeptIdTable::new(1 << 16, None, 8080));
        let sharing = Sharing::new();
        one.share(Arc::clone(&sharing));
        let (news, mut told) = (sharing.subscribe(), Vec::new());
        one.remember(1, "resp_1", Place(7));
        one.remember(1, "resp_1", Place(7));
        assert!(!news.take(&mut told));
        let [told] = told.as_slice() else { panic!("what is known is told once: {told:?}") };
        assert_eq!(told.pool, ALL_POOLS);
        let News::Found(FoundOut::Kept { rows }) = &told.tellings[0].news else {
            panic!("{told:?}")
        };
        other.hear(rows.clone());
        assert_eq!(other.find(1, "resp_1"), KeptAt::Replica(Place(7)));
        assert_eq!(other.find(2, "resp_1"), KeptAt::Foreign);
        // One that comes later is told all of them.
        let late = KeptIdTable::new(1 << 16, None, 8080);
        for it in other.told() {
            let FoundOut::Kept { rows } = it else { panic!("{it:?}") };
            late.hear(rows);
        }
        assert_eq!(late.find(1, "resp_1"), KeptAt::Replica(Place(7)));
    }

    #[test]
    fn ids_outlive_the_router_and_their_file_is_bounded() {
        let folder = std::env::temp_dir().join(format!("cleave-ids-{}", std::process::id()));
        let table = || KeptIdTable::new(4096, Some(&folder), 8080);
        let file = folder.join("ids-8080.bin");
        let first = table();
        first.keep();
        assert!(!file.exists(), "nothing is written of nothing");
        let capacity = 128;
        for number in 0..100_u64 {
            for turn in 0..10 {
                first.remember(1, &format!("{number}-{turn}"), Place(number));
            }
            first.keep();
            let rows = fs::metadata(&file).unwrap().len() / 24;
            assert!(rows <= 2 * capacity + 12, "{rows}");
        }
        assert_eq!(first.find(1, "99-9"), KeptAt::Replica(Place(99)));
        let second = table();
        assert_eq!(second.find(1, "99-9"), KeptAt::Replica(Place(99)));
        assert_eq!(second.find(2, "99-9"), KeptAt::Foreign);
        fs::write(&file, "something else that is longer than a row").unwrap();
        assert_eq!(table().find(1, "99-9"), KeptAt::Unknown);
        fs::remove_dir_all(&folder).unwrap();
    }
}
