//! The macro that turns a list of row kinds into the types that handle all these kinds. A second
//! list makes a second set of types: `core/tests/rows.rs` does so to show how much code a new kind
//! takes.

/// Declares a family of row kinds, one `plural: Type` a line, then the ordered reads that commands
/// ask for, one `; name: Type` a line. The invoking module must import the types that
/// [`rows`](crate::rows) imports. The table in [`rows`](crate::rows) lists the types
/// that the macro defines.
#[macro_export]
macro_rules! row_family {
    ($($(#[$doc:meta])* $rows:ident: $Kind:ident,)+ $(; $(#[$read_doc:meta])* $reads:ident: $Read:ident)*) => {
        /// The keys of the rows that commands read.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Keys { $($(#[$doc])* pub $rows: Vec<Key<$Kind>>,)+
            $($(#[$read_doc])* pub $reads: Vec<OrderedRead<$Read>>,)* }
        /// The rows that one command writes.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Changes { $($(#[$doc])* pub $rows: Vec<WrittenRow<$Kind>>,)+
            /** The newest fence, `None` if the command gave none out. */ pub fence: Option<Fence> }
        /// The net effect of a group of commands: the rows that the group has changed, in the order
        /// of first write.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct NetChanges { $($(#[$doc])* pub $rows: Vec<RowChange<$Kind>>,)+
            /** The newest fence, `None` if the group gave none out. */ pub fence: Option<Fence> }
        /// Every row of a store, in the order of keys.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct State { $($(#[$doc])* pub $rows: BTreeMap<Key<$Kind>, $Kind>,)+
            /** The newest fence that the store has given out. */ pub fence: Fence }
        /// Every row of the reference store.
        #[derive(Clone, Debug, Default)]
        pub struct Tables { $($rows: Table<$Kind>,)+ fence: Fence }
        /// The rows loaded for a group of commands, as the commands so far have left them.
        #[derive(Debug, Default)]
        #[allow(dead_code, reason = "the family of a test gives out no fences")]
        pub struct Workspace { $($rows: Loaded<$Kind>,)+ fence: Fence, new_fence: Option<Fence> }
        /// One row of any kind, with its key.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum AnyRow { $($(#[$doc])* $Kind(Key<$Kind>, $Kind),)+ }
        /// A row kind of this family. Each method returns the part of `all` that has the rows of
        /// this kind.
        #[allow(missing_docs, reason = "the trait describes them")]
        pub trait Kind: RowKind {
            fn loaded(all: &Workspace) -> &Loaded<Self>;
            fn loaded_mut(all: &mut Workspace) -> &mut Loaded<Self>;
            fn table(all: &Tables) -> &Table<Self>;
            fn table_mut(all: &mut Tables) -> &mut Table<Self>;
        }
        $(impl Kind for $Kind {
            fn loaded(all: &Workspace) -> &Loaded<Self> { &all.$rows }
            fn loaded_mut(all: &mut Workspace) -> &mut Loaded<Self> { &mut all.$rows }
            fn table(all: &Tables) -> &Table<Self> { &all.$rows }
            fn table_mut(all: &mut Tables) -> &mut Table<Self> { &mut all.$rows }
        })+
        impl Workspace {
            pub(super) fn drop_loaded(&self, keys: &mut Keys) {
                $(keys.$rows.retain(|key| !self.$rows.contains(key));)+
                $(keys.$reads.retain(|read| <$Read as Kind>::loaded(self).first(read).is_err());)*
            }
            pub(super) fn is_any_written(&self, keys: &Keys) -> bool { $(self.$rows.is_any_written(&keys.$rows))||+ }
            pub(super) fn write_rows(&mut self, new: Changes) { $(self.$rows.write_all(new.$rows);)+ }
            pub(super) fn net(self) -> NetChanges { NetChanges { $($rows: self.$rows.net(),)+ fence: self.new_fence } }
        }
        impl Tables {
            pub(super) fn load_rows(&self, keys: Keys, to: &mut Workspace) {
                $(self.$rows.load(keys.$rows, &mut to.$rows);)+
                $(for read in &keys.$reads {
                    <$Read as Kind>::loaded_mut(to).load_first(read, <$Read as Kind>::table(self).first(read));
                })*
            }
            pub(super) fn write_rows(&mut self, new: Changes) { $(self.$rows.write_all(new.$rows);)+ }
            pub(super) fn save_rows(&mut self, new: &NetChanges) { $(self.$rows.save_all(&new.$rows);)+ }
            pub(super) fn sorted(&self) -> State { State { $($rows: self.$rows.sorted(),)+ fence: self.fence } }
        }
        impl State { pub(super) fn insert_row(&mut self, row: AnyRow) {
            match row { $(AnyRow::$Kind(key, row) => _ = self.$rows.insert(key, row),)+ }
        } }
    };
}
