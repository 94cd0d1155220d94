// Command registry reads the images that `cargo xtask image` writes, with a library that others pull and push with, and is a
// container registry that asks for a password.
package main

import (
	"crypto/subtle"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func main() {
	if len(os.Args) < 2 {
		fail("usage: registry serve | push LAYOUT NAME | validate LAYOUT ARCHIVE")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address to serve at; the one taken is printed")
	user := flags.String("user", "", "the only user")
	password := flags.String("password", "", "the user's password")
	if err := flags.Parse(os.Args[2:]); err != nil {
		fail("%v", err)
	}
	auth := authn.FromConfig(authn.AuthConfig{Username: *user, Password: *password})
	var err error
	switch args := flags.Args(); {
	case os.Args[1] == "serve" && len(args) == 0:
		err = serve(*listen, *user, *password)
	case os.Args[1] == "push" && len(args) == 2:
		err = push(args[0], args[1], auth)
	case os.Args[1] == "validate" && len(args) == 2:
		err = check(args[0], args[1])
	default:
		fail("%s does not take %d arguments", os.Args[1], len(args))
	}
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// serve keeps images in memory, for those who know the password.
func serve(listen, user, password string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		givenUser, givenPassword, _ := r.BasicAuth()
		known := subtle.ConstantTimeCompare([]byte(givenUser), []byte(user)) == 1
		if !known || subtle.ConstantTimeCompare([]byte(givenPassword), []byte(password)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			http.Error(w, `{"errors": [{"code": "UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}))
}

// image is the only one of a layout.
func image(directory string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(directory)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s has %d images, not one", directory, len(manifest.Manifests))
	}
	return index.Image(manifest.Manifests[0].Digest)
}

// push prints the digest under which the registry has the image.
func push(directory, to string, auth authn.Authenticator) error {
	made, err := image(directory)
	if err != nil {
		return err
	}
	tag, err := name.ParseReference(to, name.Insecure)
	if err != nil {
		return err
	}
	if err := remote.Write(tag, made, remote.WithAuth(auth)); err != nil {
		return err
	}
	stored, err := remote.Head(tag, remote.WithAuth(auth))
	if err != nil {
		return err
	}
	fmt.Println(stored.Digest)
	return nil
}

// check compares every digest and size of a layout, and of the archive for engines, and prints the layout's digest.
func check(directory, archive string) error {
	made, err := image(directory)
	if err != nil {
		return err
	}
	if err := validate.Image(made); err != nil {
		return fmt.Errorf("%s: %w", directory, err)
	}
	loaded, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	if err := validate.Image(loaded); err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	own, err := made.ConfigName()
	if err != nil {
		return err
	}
	other, err := loaded.ConfigName()
	if err != nil {
		return err
	}
	if own != other {
		return fmt.Errorf("the archive has the image %s, and the layout %s", other, own)
	}
	digest, err := made.Digest()
	if err != nil {
		return err
	}
	fmt.Println(digest)
	return nil
}
