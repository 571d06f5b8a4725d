package rpc

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// StandsBy returns s for a planner that stands by for another one, and is to serve those who know that one: it makes no file
// with an access key.
func (s Security) StandsBy() Security {
	s.standby = true
	return s
}

// CheckPlanner refuses what a planner could not serve with: a certificate that is not valid now or has not its role, and where
// it stands by, an access key that is not to be had (class user). That of any other planner is found out when it begins to serve at its address.
func (s Security) CheckPlanner(address string) error {
	if s.network != nil || s.carrier != nil {
		return nil
	}
	if err := cmp.Or(s.validate(), s.checkPlain(address)); err != nil {
		return err
	}
	if s.enabled() {
		own, err := s.identity()
		if err != nil {
			return err
		}
		if err := own.serves(rolePlanner); err != nil {
			return err
		}
	}
	if k := s.keys(); k != nil && s.standby {
		_, err := k.give(false)
		return err
	}
	return nil
}

// MakesKey says whether a planner makes an access key that only processes of its user find, by its address.
func (s Security) MakesKey() bool {
	return s.network == nil && s.carrier == nil && !s.enabled() && s.keys() == nil
}

// WatchCertificate logs what becomes of the certificate until done is closed, as a server does.
func (s Security) WatchCertificate(done <-chan struct{}) {
	if s.enabled() {
		if own, err := s.identity(); err == nil {
			own.watch(done)
		}
	}
}

// serves says why nobody would believe that the owner of the certificate has a role.
func (i *identity) serves(role string) error {
	config := i.current()
	i.mu.Lock()
	ends := i.ends
	i.mu.Unlock()
	if time.Now().After(ends) {
		return fault.Userf("the TLS certificate %s, or that of its authority, ended at %s: renew it", i.files[0], inUTC(ends))
	}
	leaf := config.Certificates[0].Leaf
	if has := rolesOf(leaf); !slices.Contains(has, role) {
		return fault.Userf("the TLS certificate %s (%s) has no role to be the %s: among its subject alternative names must be URI:%s%s or URI:%s%s, and its roles are %s; see docs/cli.md",
			i.files[0], leaf.Subject, role, rolePrefix, role, rolePrefix, roleService, nameAll(has))
	}
	return nil
}
