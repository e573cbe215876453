//! The modules of this node, in memory. The database holds the same entries.

use std::collections::HashMap;

use crate::model::{Module, ModuleId, Owner, UserName};

/// The modules of this node. Invariant: no two of them have the same Unix user.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    modules: HashMap<ModuleId, Module>,
    by_user: HashMap<UserName, ModuleId>,
}

/// The Unix user belongs to another module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Unix user {user} belongs to module {module}")]
pub struct UserTaken {
    user: UserName,
    module: ModuleId,
}

impl Registry {
    /// The module of that id.
    #[must_use]
    pub fn get(&self, id: &ModuleId) -> Option<&Module> {
        self.modules.get(id)
    }

    /// The module whose processes run as `user`.
    #[must_use]
    pub fn by_user(&self, user: &UserName) -> Option<&Module> {
        self.get(self.by_user.get(user)?)
    }

    /// Whether there is no module at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// Whether `owner` is, or helps, a module that there is not by `is_there`. Software outside the
    /// modules never does.
    pub fn is_gone(owner: &Owner, is_there: impl Fn(&ModuleId) -> bool) -> bool {
        let own = ModuleId::parse(owner.as_str());
        let is_outside = owner.as_str().contains('/');
        !is_outside
            && !own.is_ok_and(|id| is_there(&id))
            && !owner.possible_modules().any(|id| is_there(&id))
    }

    /// Every module, ordered by id.
    #[must_use]
    pub fn all(&self) -> Vec<&Module> {
        let mut modules: Vec<_> = self.modules.values().collect();
        modules.sort_by(|a, b| a.id.cmp(&b.id));
        modules
    }

    /// Whether `module` may be set: no other module has its Unix user.
    pub fn check(&self, module: &Module) -> Result<(), UserTaken> {
        match self.by_user.get(&module.unix_user) {
            Some(id) if *id != module.id => {
                Err(UserTaken { user: module.unix_user.clone(), module: id.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The modules whose entries give way when the one whose Unix user is `user` gets `entry`: it is
    /// the module of that name, and no other one has the user. None of them is `entry` itself.
    #[must_use]
    pub fn outdated(&self, user: &UserName, entry: Option<&Module>) -> Vec<ModuleId> {
        let of_the_name = ModuleId::parse(user.as_str()).ok().and_then(|id| self.get(&id));
        let mut outdated: Vec<_> = of_the_name
            .into_iter()
            .chain(self.by_user(user))
            .filter(|module| Some(*module) != entry)
            .map(|module| module.id.clone())
            .collect();
        outdated.dedup();
        outdated
    }

    /// Whether `entry` is all there is to the name `user`.
    #[must_use]
    pub fn has(&self, user: &UserName, entry: Option<&Module>) -> bool {
        entry.is_none_or(|entry| self.get(&entry.id) == Some(entry))
            && self.outdated(user, entry).is_empty()
    }

    /// Adds the module, or replaces the entry of its id.
    pub fn set(&mut self, module: Module) -> Result<(), UserTaken> {
        self.check(&module)?;
        self.remove(&module.id);
        self.by_user.insert(module.unix_user.clone(), module.id.clone());
        self.modules.insert(module.id.clone(), module);
        Ok(())
    }

    /// Takes the module's entry away, if there is one.
    pub fn remove(&mut self, id: &ModuleId) -> Option<Module> {
        let module = self.modules.remove(id)?;
        self.by_user.remove(&module.unix_user);
        Some(module)
    }

    /// Whether what `owner` holds goes when the module `id` is removed: `owner` is the module
    /// itself, or a helper of it and of no registered module with a longer name.
    #[must_use]
    pub fn belongs_to(&self, owner: &Owner, id: &ModuleId) -> bool {
        if *owner == Owner::from(id) {
            return true;
        }
        let is_module = ModuleId::parse(owner.as_str()).is_ok_and(|own| self.get(&own).is_some());
        if is_module {
            return false;
        }
        owner.possible_modules().find(|module| module == id || self.get(module).is_some()).as_ref()
            == Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Demand;

    fn module(id: &str, user: &str) -> Module {
        Module {
            id: ModuleId::parse(id).unwrap(),
            unix_user: UserName::parse(user).unwrap(),
            portsadm: false,
            demand: Demand::default(),
        }
    }

    #[test]
    fn a_user_is_one_module_at_most() {
        let mut registry = Registry::default();
        registry.set(module("mail1", "mail1")).unwrap();
        assert!(registry.set(module("mail2", "mail1")).is_err());
        registry.set(module("mail1", "other")).unwrap();
        assert!(registry.by_user(&UserName::parse("mail1").unwrap()).is_none());
        registry.set(module("mail2", "mail1")).unwrap();
        let ids: Vec<_> = registry.all().iter().map(|m| m.id.to_string()).collect();
        assert_eq!(ids, ["mail1", "mail2"]);
        registry.remove(&ModuleId::parse("mail2").unwrap()).unwrap();
        assert!(registry.by_user(&UserName::parse("mail1").unwrap()).is_none());
    }

    #[test]
    fn a_user_is_the_module_of_its_name() {
        let mut registry = Registry::default();
        for (id, user) in [("mail1", "other"), ("x", "mail2"), ("mail3", "mail3")] {
            registry.set(module(id, user)).unwrap();
        }
        let outdated = |user: &str, entry: Option<&Module>| -> Vec<String> {
            let user = UserName::parse(user).unwrap();
            registry.outdated(&user, entry).iter().map(ToString::to_string).collect()
        };
        assert_eq!(outdated("mail1", Some(&module("mail1", "mail1"))), ["mail1"]);
        assert_eq!(outdated("mail2", Some(&module("mail2", "mail2"))), ["x"]);
        assert_eq!(outdated("mail2", None), ["x"]);
        assert_eq!(outdated("mail3", None), ["mail3"]);
        assert_eq!(outdated("mail3", Some(&module("mail3", "mail3"))), [""; 0]);
        assert_eq!(outdated("_web", None), [""; 0]);
        let mail = module("mail3", "mail3");
        assert!(registry.has(&mail.unix_user, Some(&mail)));
        assert!(!registry.has(&mail.unix_user, None));
    }

    #[test]
    fn helpers_belong_to_the_longest_module_that_exists() {
        let mut registry = Registry::default();
        for id in ["mail1", "mail1_b", "mail1_c"] {
            registry.set(module(id, id)).unwrap();
        }
        let belongs = |owner, id| {
            registry.belongs_to(&Owner::parse(owner).unwrap(), &ModuleId::parse(id).unwrap())
        };
        assert!(belongs("mail1", "mail1"));
        assert!(belongs("mail1_rsync", "mail1"));
        assert!(belongs("mail1_b_rsync", "mail1_b"));
        assert!(!belongs("mail1_b_rsync", "mail1"));
        assert!(!belongs("mail1_c", "mail1"));
        assert!(!belongs("mail10", "mail1"));
        assert!(!belongs("host/mail1", "mail1"));
        let gone = |owner| {
            Registry::is_gone(&Owner::parse(owner).unwrap(), |id| registry.get(id).is_some())
        };
        assert!(gone("web1") && gone("web1_rsync") && gone("mail10"));
        assert!(!gone("mail1") && !gone("mail1_rsync") && !gone("mail1_b_x") && !gone("host/web1"));
        // a module that is not registered still has what it owns
        assert!(belongs("web1_rsync", "web1"));
    }
}
